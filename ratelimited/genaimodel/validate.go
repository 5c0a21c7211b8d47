package genaimodel

import (
	"fmt"

	"google.golang.org/genai"
)

// invalidError is a request that was not sent because of what is wrong with it.
type invalidError struct{ message string }

func (e *invalidError) Error() string { return "genaimodel: " + e.message }

// Denied tells package ratelimited that nothing was sent, so that nothing is
// charged.
func (e *invalidError) Denied() bool { return true }

func invalid(format string, args ...any) error {
	return &invalidError{fmt.Sprintf(format, args...)}
}

// validate finds a nil on which the SDK would panic. The error names the field.
func (r *Request) validate() error {
	if r == nil {
		return invalid("request is nil")
	}
	for i, c := range r.Contents {
		if field, ok := nilIn(c); ok {
			return invalid("Contents[%d]%s is nil", i, field)
		}
	}
	if r.Config == nil {
		return nil
	}
	if c := r.Config.SystemInstruction; c != nil {
		if field, ok := nilIn(c); ok {
			return invalid("Config.SystemInstruction%s is nil", field)
		}
	}
	for i, t := range r.Config.Tools {
		if t == nil {
			return invalid("Config.Tools[%d] is nil", i)
		}
		for j, f := range t.FunctionDeclarations {
			if f == nil {
				return invalid("Config.Tools[%d].FunctionDeclarations[%d] is nil", i, j)
			}
		}
		for j, m := range t.MCPServers {
			if m == nil {
				return invalid("Config.Tools[%d].MCPServers[%d] is nil", i, j)
			}
		}
	}
	if c := r.Config.SpeechConfig; c != nil && c.MultiSpeakerVoiceConfig != nil {
		for i, s := range c.MultiSpeakerVoiceConfig.SpeakerVoiceConfigs {
			if s == nil {
				return invalid("Config.SpeechConfig.MultiSpeakerVoiceConfig.SpeakerVoiceConfigs[%d] is nil", i)
			}
		}
	}
	for i, s := range r.Config.SafetySettings {
		if s == nil {
			return invalid("Config.SafetySettings[%d] is nil", i)
		}
	}
	return nil
}

// nilIn reports whether c, or a part of it, is nil, and names the part.
func nilIn(c *genai.Content) (field string, ok bool) {
	if c == nil {
		return "", true
	}
	for i, p := range c.Parts {
		if p == nil {
			return fmt.Sprintf(".Parts[%d]", i), true
		}
		if p.FunctionResponse == nil {
			continue
		}
		for j, q := range p.FunctionResponse.Parts {
			if q == nil {
				return fmt.Sprintf(".Parts[%d].FunctionResponse.Parts[%d]", i, j), true
			}
		}
	}
	return "", false
}
