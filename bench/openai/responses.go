package openai

import (
	"context"
	"maps"
)

// fields make an object of the Responses API, which has many and mostly null.
type fields = map[string]any

// endStatus is the status of an answer that came to its end.
func (r *reply) endStatus() string {
	if r.finish == finishLength {
		return "incomplete"
	}
	return "completed"
}

// response is the object that stands for the answer, with its output and usage
// once it is ended.
func (r *reply) response(status string, ended bool) fields {
	f := fields{
		"id": r.id("resp_", "response"), "object": "response", "created_at": r.began.Unix(), "status": status,
		"background": false, "error": nil, "incomplete_details": nil, "instructions": nil, "max_output_tokens": nil,
		"model": r.req.Model, "output": []fields{}, "parallel_tool_calls": true, "previous_response_id": nil,
		"store": true, "temperature": 1.0, "text": fields{"format": fields{"type": "text"}}, "tool_choice": "auto",
		"tools": []fields{}, "top_p": 1.0, "truncation": "disabled", "usage": nil, "metadata": fields{},
	}
	if r.req.MaxOutputTokens > 0 {
		f["max_output_tokens"] = r.req.MaxOutputTokens
	}
	if !ended {
		return f
	}
	f["output"] = r.items("completed")
	if status == "incomplete" {
		f["incomplete_details"] = fields{"reason": "max_output_tokens"}
	}
	if u := r.usage(); u != nil {
		f["usage"] = fields{
			"input_tokens": u.PromptTokens, "input_tokens_details": fields{"cached_tokens": u.PromptTokensDetails.CachedTokens},
			"output_tokens": u.CompletionTokens, "output_tokens_details": fields{"reasoning_tokens": u.CompletionTokensDetails.ReasoningTokens},
			"total_tokens": u.TotalTokens,
		}
	}
	return f
}

// items are the output: the reasoning, then a message or function calls.
func (r *reply) items(status string) (list []fields) {
	if r.answer.Reasoning > 0 {
		list = append(list, fields{"id": r.id("rs_", "reasoning"), "type": "reasoning", "summary": []fields{}})
	}
	text, calls := "", 0
	for i, p := range r.pieces {
		text += p.text
		if p.call != nil {
			calls++
			list = append(list, r.callItem(p.call, i, status, string(p.call.Args)))
		}
	}
	if calls == 0 {
		list = append(list, r.messageItem(status, []fields{textPart(text)}))
	}
	return list
}

func (r *reply) messageItem(status string, content []fields) fields {
	return fields{"id": r.id("msg_", "message"), "type": "message", "status": status, "role": "assistant", "content": content}
}

func (r *reply) callItem(c *FunctionCall, i int, status, args string) fields {
	return fields{
		"id": "fc_" + r.callID(i)[len("call_"):], "type": "function_call", "status": status,
		"call_id": r.callID(i), "name": c.Name, "arguments": args,
	}
}

func textPart(text string) fields {
	return fields{"type": "output_text", "text": text, "annotations": []fields{}, "logprobs": []fields{}}
}

// streamResponse sends a response as events, in the order of the API's.
func (r *reply) streamResponse(ctx context.Context) {
	var events []event
	add := func(tokens int, name string, more fields) {
		data := fields{"type": name, "sequence_number": len(events)}
		maps.Copy(data, more)
		events = append(events, event{name: name, data: data, tokens: tokens})
	}
	add(-1, "response.created", fields{"response": r.response("in_progress", false)})
	add(-1, "response.in_progress", fields{"response": r.response("in_progress", false)})
	index := 0
	if r.answer.Reasoning > 0 {
		item := fields{"id": r.id("rs_", "reasoning"), "type": "reasoning", "summary": []fields{}}
		add(0, "response.output_item.added", fields{"output_index": index, "item": item})
		add(r.answer.Reasoning, "response.output_item.done", fields{"output_index": index, "item": item})
		index++
	}
	if len(r.pieces) == 0 || r.pieces[0].call == nil {
		r.messageEvents(add, index)
	}
	for i, p := range r.pieces {
		if p.call == nil {
			continue
		}
		args := string(p.call.Args)
		at := fields{"output_index": index, "item_id": r.callItem(p.call, i, "", "")["id"]}
		add(p.tokens-p.call.tokens(), "response.output_item.added", fields{"output_index": index, "item": r.callItem(p.call, i, "in_progress", "")})
		add(p.tokens, "response.function_call_arguments.delta", with(at, "delta", args))
		add(p.tokens, "response.function_call_arguments.done", with(at, "arguments", args))
		add(p.tokens, "response.output_item.done", fields{"output_index": index, "item": r.callItem(p.call, i, "completed", args)})
		index++
	}
	status := r.endStatus()
	add(r.generated(), "response."+status, fields{"response": r.response(status, true)})
	r.stream(ctx, events)
}

// messageEvents are the events of a message.
func (r *reply) messageEvents(add func(int, string, fields), index int) {
	tokens, text := r.answer.Reasoning, ""
	at := fields{"output_index": index, "item_id": r.id("msg_", "message"), "content_index": 0}
	add(tokens, "response.output_item.added", fields{"output_index": index, "item": r.messageItem("in_progress", []fields{})})
	add(tokens, "response.content_part.added", with(at, "part", textPart("")))
	for _, p := range r.pieces {
		text += p.text
		tokens = p.tokens
		add(tokens, "response.output_text.delta", with(with(at, "delta", p.text), "logprobs", []fields{}))
	}
	add(tokens, "response.output_text.done", with(with(at, "text", text), "logprobs", []fields{}))
	add(tokens, "response.content_part.done", with(at, "part", textPart(text)))
	add(tokens, "response.output_item.done", fields{"output_index": index, "item": r.messageItem("completed", []fields{textPart(text)})})
}

// with is a copy of an object with one more field.
func with(o fields, name string, value any) fields {
	o = maps.Clone(o)
	o[name] = value
	return o
}
