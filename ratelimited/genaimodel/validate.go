package genaimodel

import (
	"errors"
	"fmt"

	"google.golang.org/genai"
)

// validate finds a nil on which the SDK would panic. The error names the field.
func (r *Request) validate() error {
	if r == nil {
		return errors.New("genaimodel: request is nil")
	}
	for i, c := range r.Contents {
		if field, ok := nilIn(c); ok {
			return fmt.Errorf("genaimodel: Contents[%d]%s is nil", i, field)
		}
	}
	if r.Config == nil {
		return nil
	}
	if c := r.Config.SystemInstruction; c != nil {
		if field, ok := nilIn(c); ok {
			return fmt.Errorf("genaimodel: Config.SystemInstruction%s is nil", field)
		}
	}
	for i, t := range r.Config.Tools {
		if t == nil {
			return fmt.Errorf("genaimodel: Config.Tools[%d] is nil", i)
		}
		for j, f := range t.FunctionDeclarations {
			if f == nil {
				return fmt.Errorf("genaimodel: Config.Tools[%d].FunctionDeclarations[%d] is nil", i, j)
			}
		}
	}
	for i, s := range r.Config.SafetySettings {
		if s == nil {
			return fmt.Errorf("genaimodel: Config.SafetySettings[%d] is nil", i)
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
	}
	return "", false
}
