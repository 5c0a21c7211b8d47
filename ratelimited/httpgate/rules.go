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
	switch {
	case m != prose || e.scan.last() != element || e.scan.depth != 2:
	case !list:
		e.add(chatMessageCost)
		e.beginItem()
	case e.scan.at(keyPrompt, element):
		e.prompts++ // as tokens
	}
}

// shut: reasoning that is sent back encrypted counts so, and not its summary.
func (openaiRules) shut(e *estimator, _ mode) {
	switch {
	case e.scan.depth == 0 && e.route.method != embed:
		e.add(chatAnswerCost)
	case e.hidden > 0 && e.scan.at(keyInput, element):
		e.texts.total = e.before
		e.texts.sealed(e.hidden)
		e.hidden = 0
	}
}

func (openaiRules) str(e *estimator, _ []byte) {
	switch e.scan.last() {
	case element:
		if e.scan.at(keyPrompt, element) {
			e.prompts++
		}
	case keyEncrypted:
		if e.scan.at(keyInput, element, keyEncrypted) {
			e.hidden = e.word.n
		}
	}
}

func (openaiRules) num(e *estimator, n int64) {
	switch {
	case e.scan.depth == 1:
		e.setting(n)
	case e.scan.last() == element && (e.route.method == embed || e.scan.path[0] == keyPrompt):
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
	case m == prose && e.scan.at(keyMessages, element, keyContent, element):
		e.beginItem()
	case m == asJSON && e.scan.at(keyTools) && list:
		e.add(toolUseCost)
	case m == asJSON && e.scan.at(keyTools, element), m == asJSON && k == keyInput && e.modes[e.scan.depth] == prose:
		e.add(toolCost)
	}
}

// shut: the signature stands for all of the thinking, the text perhaps for a
// summary of it.
func (anthropicRules) shut(e *estimator, _ mode) {
	if e.hidden > 0 && e.scan.at(keyMessages, element, keyContent, element) {
		text := e.texts.total
		e.texts.total = e.before
		e.texts.sealed(e.hidden)
		e.texts.total, e.hidden = max(e.texts.total, text), 0
	}
}

func (anthropicRules) str(e *estimator, value []byte) {
	switch e.scan.last() {
	case keySignature:
		if e.scan.at(keyMessages, element, keyContent, element, keySignature) {
			e.hidden = e.word.n
		}
	case keyData:
		if e.scan.at(keyMessages, element, keyContent, element, keyData) { // thinking that was redacted
			e.texts.sealed(e.word.n)
		}
	case keyEncrypted:
		if e.modes[e.scan.depth] == prose { // a page that the API has found
			e.texts.sealed(e.word.n)
		}
	case keyType:
		if e.modes[e.scan.depth] == prose {
			e.picture = string(value) == "image" // its source follows
		}
	}
}

func (anthropicRules) num(e *estimator, n int64) {
	if e.scan.depth == 1 || e.scan.at(keyThinking, keyBudgetTokens) {
		e.setting(n)
	}
}
