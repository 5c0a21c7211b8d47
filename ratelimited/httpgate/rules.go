package httpgate

// What requests cost beside their texts, in thousandths of a token.
const (
	// contentCost, callCost and responseCost are what package usage counts for a
	// content, a function's call and a function's response at Gemini.
	contentCost  = 1 * token
	callCost     = 10 * token
	responseCost = 5 * token

	// A message of a chat and the beginning of the answer (OpenAI cookbook, "How
	// to count tokens with tiktoken").
	chatMessageCost = 4 * token
	chatAnswerCost  = 3 * token

	// Anthropic docs, token counting page and the pages on tools.
	promptCost  = 3 * token
	messageCost = 4 * token
	toolUseCost = 346 * token // once, if there is any tool
	toolCost    = 12 * token  // the frame of a tool, a call or a result
)

// geminiRules are those of the Gemini API and of Vertex AI, whose fields have the
// same meaning wherever they lie: methods that take several requests, or wrap
// one, have them further in.
type geminiRules struct{}

func (geminiRules) into(e *estimator, m mode, container bool) mode {
	k := e.scan.last()
	switch m {
	case ignored:
		switch k {
		case keyContents, keyContent, keySystem:
			return prose
		case keyTools, keySchema:
			return asJSON
		}
	case prose:
		switch k {
		case keyFunctionCall, keyFunctionResponse:
			return asJSON
		case keyInlineData, keyFileData:
			return media
		case keyText, keyCode, keyOutput, element:
			return prose
		}
		if !container && k != keyContent {
			return ignored
		}
	}
	return m
}

func (geminiRules) opened(e *estimator, m mode, list bool) {
	switch k := e.scan.last(); {
	case m == prose && list && k == keyParts:
		e.add(contentCost)
	case m == prose && !list && k == element && e.scan.up(1) == keyContents:
		e.userTurn, e.userRole = false, true
	case m == prose && !list && k == element && e.scan.up(1) == keyParts:
		e.partOfUser = true
	case m == asJSON && k == keyFunctionCall && e.modes[e.scan.depth] == prose:
		e.add(callCost)
	case m == asJSON && k == keyFunctionResponse && e.modes[e.scan.depth] == prose:
		e.add(responseCost)
		e.partOfUser = false
	}
}

// shut drops the signatures before a message of the user: the API does.
func (geminiRules) shut(e *estimator, m mode) {
	if m != prose {
		return
	}
	switch {
	case e.scan.last() == element && e.scan.up(1) == keyParts:
		e.userTurn = e.userTurn || e.partOfUser
	case e.scan.last() == element && e.scan.up(1) == keyContents:
		if e.userRole && e.userTurn {
			e.signatures = 0
		}
	}
}

func (geminiRules) str(e *estimator, value []byte) {
	switch e.scan.last() {
	case keyRole:
		e.userRole = string(value) != "model"
	case keyMediaResolution:
		if e.modes[e.scan.depth] == ignored {
			e.resolution = string(value)
		}
	case keyThoughtSignature:
		e.signatures = plus(e.signatures, int64(e.word.n)/4*3)
	}
}

func (geminiRules) num(e *estimator, n int64) {
	if e.scan.up(1) == keyGenerationConfig {
		e.setting(n)
	}
}

// openaiRules are those of chat completions, completions, responses and
// embeddings.
type openaiRules struct{}

func (openaiRules) into(e *estimator, m mode, container bool) mode {
	k := e.scan.last()
	switch m {
	case ignored:
		if e.scan.depth != 1 {
			return m
		}
		switch k {
		case keyMessages, keyInput, keyInstructions, keyPrompt:
			return prose
		case keyTools, keyFunctions, keyResponseFormat:
			return asJSON
		case keyText:
			if container {
				return asJSON // the format that an answer is to have
			}
		}
	case prose:
		switch k {
		case keyImageURL, keyInputAudio, keyFile, keyFileData, keyFileID:
			return media
		case keyContent, keyText, keyRefusal, keyName, keyArguments, keyOutput, keyReasoning, element:
			return prose
		}
		if !container && e.scan.depth > 1 {
			return ignored
		}
	}
	return m
}

func (openaiRules) opened(e *estimator, m mode, list bool) {
	if m != prose || list || e.scan.last() != element || e.scan.depth != 2 {
		return
	}
	e.add(chatMessageCost)
}

func (openaiRules) shut(e *estimator, _ mode) {
	if e.scan.depth == 0 && e.route.method != embed {
		e.add(chatAnswerCost)
	}
}

func (openaiRules) str(e *estimator, value []byte) {
	if e.scan.at(keyModel) {
		e.model = string(value)
	}
}

func (openaiRules) num(e *estimator, n int64) {
	switch {
	case e.scan.depth == 1:
		e.setting(n)
	case e.route.method == embed && e.scan.last() == element:
		e.add(token) // texts may come as tokens
	}
}

// anthropicRules are those of messages.
type anthropicRules struct{}

func (anthropicRules) into(e *estimator, m mode, container bool) mode {
	k := e.scan.last()
	switch m {
	case ignored:
		if e.scan.depth != 1 {
			return m
		}
		switch k {
		case keySystem, keyMessages:
			return prose
		case keyTools, keyResponseFormat:
			return asJSON
		}
	case prose:
		switch k {
		case keyInput:
			return asJSON
		case keySource:
			return media
		case keyText, keyContent, keyThinking, keyName, element:
			return prose
		}
		if !container && e.scan.depth > 1 {
			return ignored
		}
	case media:
		if k == keyContent {
			return prose // a document of blocks
		}
	}
	return m
}

func (anthropicRules) opened(e *estimator, m mode, list bool) {
	k := e.scan.last()
	switch {
	case e.scan.depth == 0:
		e.add(promptCost)
	case m == prose && e.scan.at(keyMessages, element):
		e.add(messageCost)
	case m == asJSON && e.scan.at(keyTools) && list:
		e.add(toolUseCost)
	case m == asJSON && e.scan.at(keyTools, element), m == asJSON && k == keyInput && e.modes[e.scan.depth] == prose:
		e.add(toolCost)
	}
}

func (anthropicRules) shut(*estimator, mode) {}

func (anthropicRules) str(e *estimator, value []byte) {
	switch e.scan.last() {
	case keyModel:
		if e.scan.at(keyModel) {
			e.model = string(value)
		}
	case keyType:
		if e.modes[e.scan.depth] == prose {
			e.picture = string(value) == "image" // its source follows
		}
	}
}

func (anthropicRules) num(e *estimator, n int64) {
	if e.scan.depth == 1 {
		e.setting(n)
	}
}
