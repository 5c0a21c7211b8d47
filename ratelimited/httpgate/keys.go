package httpgate

// key is the name of a member that is looked for in a JSON text.
type key uint8

const (
	unknownKey key = iota // of an object's member, but none of these
	element               // of an array

	keyArguments
	keyBudgetTokens
	keyCacheCreation
	keyCacheRead
	keyCacheWrite
	keyCachedContentTokens
	keyCachedTokens
	keyCandidateCount
	keyCandidates
	keyCandidatesTokens
	keyChoices
	keyCode
	keyCompletionDetails
	keyCompletionTokens
	keyContent
	keyContentBlock
	keyContents
	keyData
	keyDelta
	keyDetail
	keyEncrypted
	keyError
	keyFile
	keyFileData
	keyFileID
	keyFinishReason
	keyFormat
	keyFunctionCall
	keyFunctionResponse
	keyFunctions
	keyGenerationConfig
	keyImageURL
	keyIndex
	keyInlineData
	keyInput
	keyInputAudio
	keyInputDetails
	keyInputTokens
	keyInstructions
	keyMaxTokens
	keyMediaResolution
	keyMediaType
	keyMessage
	keyMessages
	keyModel
	keyN
	keyName
	keyOutput
	keyOutputDetails
	keyOutputTokens
	keyParts
	keyPartialJSON
	keyPrompt
	keyPromptFeedback
	keyBlockReason
	keyPromptDetails
	keyPromptTokens
	keyReasoning
	keyReasoningTokens
	keyRefusal
	keyResponse
	keyResponseFormat
	keyRole
	keySchema
	keySignature
	keySource
	keyStopReason
	keySystem
	keyText
	keyThinking
	keyThinkingTokens
	keyThoughtSignature
	keyThoughtsTokens
	keyToolPromptTokens
	keyTools
	keyTotal
	keyType
	keyURL
	keyUsage
	keyUsageMetadata
)

// keyOf finds the key of a name. Google's API takes the names of its fields in
// two spellings.
func keyOf(name []byte) key {
	switch string(name) {
	case "arguments", "partial_args":
		return keyArguments
	case "budget_tokens":
		return keyBudgetTokens
	case "cache_creation_input_tokens":
		return keyCacheCreation
	case "cache_read_input_tokens":
		return keyCacheRead
	case "cache_write_tokens":
		return keyCacheWrite
	case "cachedContentTokenCount":
		return keyCachedContentTokens
	case "cached_tokens":
		return keyCachedTokens
	case "candidateCount", "candidate_count":
		return keyCandidateCount
	case "candidates":
		return keyCandidates
	case "candidatesTokenCount":
		return keyCandidatesTokens
	case "choices":
		return keyChoices
	case "code":
		return keyCode
	case "completion_tokens_details":
		return keyCompletionDetails
	case "completion_tokens":
		return keyCompletionTokens
	case "content":
		return keyContent
	case "content_block":
		return keyContentBlock
	case "contents":
		return keyContents
	case "data":
		return keyData
	case "delta":
		return keyDelta
	case "detail":
		return keyDetail
	case "encrypted_content":
		return keyEncrypted
	case "error":
		return keyError
	case "file":
		return keyFile
	case "fileData", "file_data":
		return keyFileData
	case "file_id":
		return keyFileID
	case "finishReason", "finish_reason":
		return keyFinishReason
	case "format":
		return keyFormat
	case "functionCall", "function_call", "toolCall", "tool_call":
		return keyFunctionCall
	case "functionResponse", "function_response", "toolResponse", "tool_response":
		return keyFunctionResponse
	case "functions":
		return keyFunctions
	case "generationConfig", "generation_config":
		return keyGenerationConfig
	case "image_url":
		return keyImageURL
	case "index":
		return keyIndex
	case "inlineData", "inline_data":
		return keyInlineData
	case "input":
		return keyInput
	case "input_audio":
		return keyInputAudio
	case "input_tokens_details":
		return keyInputDetails
	case "input_tokens":
		return keyInputTokens
	case "instructions":
		return keyInstructions
	case "maxOutputTokens", "max_output_tokens", "max_tokens", "max_completion_tokens":
		return keyMaxTokens
	case "mediaResolution", "media_resolution":
		return keyMediaResolution
	case "mimeType", "mime_type", "media_type":
		return keyMediaType
	case "message":
		return keyMessage
	case "messages":
		return keyMessages
	case "model":
		return keyModel
	case "n":
		return keyN
	case "name":
		return keyName
	case "output":
		return keyOutput
	case "output_tokens_details":
		return keyOutputDetails
	case "output_tokens":
		return keyOutputTokens
	case "parts":
		return keyParts
	case "partial_json":
		return keyPartialJSON
	case "prompt":
		return keyPrompt
	case "promptFeedback":
		return keyPromptFeedback
	case "blockReason":
		return keyBlockReason
	case "prompt_tokens_details":
		return keyPromptDetails
	case "prompt_tokens", "promptTokenCount":
		return keyPromptTokens
	case "reasoning_content", "reasoning":
		return keyReasoning
	case "reasoning_tokens":
		return keyReasoningTokens
	case "refusal":
		return keyRefusal
	case "response":
		return keyResponse
	case "response_format", "output_config":
		return keyResponseFormat
	case "role":
		return keyRole
	case "responseSchema", "response_schema", "responseJsonSchema", "response_json_schema":
		return keySchema
	case "signature":
		return keySignature
	case "source":
		return keySource
	case "stop_reason":
		return keyStopReason
	case "system", "systemInstruction", "system_instruction":
		return keySystem
	case "text":
		return keyText
	case "thinking":
		return keyThinking
	case "thinking_tokens":
		return keyThinkingTokens
	case "thoughtSignature", "thought_signature":
		return keyThoughtSignature
	case "thoughtsTokenCount":
		return keyThoughtsTokens
	case "toolUsePromptTokenCount":
		return keyToolPromptTokens
	case "tools":
		return keyTools
	case "total_tokens", "totalTokenCount":
		return keyTotal
	case "type":
		return keyType
	case "url", "fileUri", "file_uri", "file_url":
		return keyURL
	case "usage":
		return keyUsage
	case "usageMetadata":
		return keyUsageMetadata
	}
	return unknownKey
}
