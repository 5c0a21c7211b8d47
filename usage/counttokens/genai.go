package counttokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// Request is a request to the Gemini API or Vertex AI. It is only read, and only
// until Estimate returns.
type Request struct {
	Model    string
	Contents []*genai.Content
	Config   *genai.GenerateContentConfig
}

// GenAI configures a [Counter] to ask countTokens of the Gemini API or of Vertex
// AI, whichever the client speaks to. The estimator is the fallback; one without
// a Model takes that of the request. Other fields of the result are unset and
// may be set before it goes to [New]. Without a Clone of their own, requests are
// copied by way of the JSON that they are also hashed as, and one that does not
// survive that is estimated.
//
// Vertex AI counts the system instruction and the tools, too. The Gemini API
// counts contents only (the SDK refuses the rest): the system instruction is
// sent as one more content, and tools and response schemas are estimated. What a
// cached content holds is not counted by either, but is in the estimate.
//
// Client errors other than 401, 403, 404, 408 and 429 are errors of the request,
// which do not speak against the endpoint.
func GenAI(client *genai.Client, e usage.Estimator) Config[Request] {
	return Config[Request]{
		Count: func(ctx context.Context, req Request) (int64, error) {
			return countGenAI(ctx, client, e, req)
		},
		Estimate: func(req Request) usage.Usage {
			return estimatorOf(e, req).GenAI(req.Contents, req.Config)
		},
		Failure: isFailure,
		decode: func(data []byte) (req Request, err error) {
			d := json.NewDecoder(bytes.NewReader(data))
			d.UseNumber() // or large integers in schemas and arguments would change
			if d.Decode(&req) != nil {
				err = errNoCopy // the cause may quote the request
			}
			return req, err
		},
	}
}

func estimatorOf(e usage.Estimator, req Request) usage.Estimator {
	if e.Model == "" {
		e.Model = req.Model
	}
	return e
}

func countGenAI(ctx context.Context, client *genai.Client, e usage.Estimator, req Request) (int64, error) {
	if client == nil {
		return 0, errors.New("counttokens: the client is nil")
	}
	contents, cfg := req.Contents, &genai.CountTokensConfig{}
	var estimated int64
	if c := req.Config; c != nil {
		system := c.SystemInstruction
		if system != nil {
			own := *system // the SDK writes a missing role
			own.Role = genai.RoleUser
			system = &own
		}
		rest := &genai.GenerateContentConfig{ResponseSchema: c.ResponseSchema, ResponseJsonSchema: c.ResponseJsonSchema}
		if client.ClientConfig().Backend == genai.BackendVertexAI {
			cfg.SystemInstruction, cfg.Tools = system, c.Tools
		} else {
			if system != nil {
				contents = append([]*genai.Content{system}, contents...)
			}
			rest.Tools = c.Tools
		}
		if rest.ResponseSchema != nil || rest.ResponseJsonSchema != nil || len(rest.Tools) > 0 {
			estimated = estimatorOf(e, req).GenAI(nil, rest).Input
		}
	}
	if len(contents) == 0 {
		return 0, errors.New("counttokens: the request has no contents")
	}
	resp, err := client.Models.CountTokens(ctx, req.Model, contents, cfg)
	if err != nil {
		return 0, fmt.Errorf("counttokens: %w", err)
	}
	if resp.TotalTokens <= 0 {
		return 0, errNoCount
	}
	return int64(resp.TotalTokens) + estimated, nil
}

// isFailure reports whether an error speaks against the endpoint.
func isFailure(err error) bool {
	if errors.Is(err, errNoCopy) {
		return false
	}
	api, ok := errors.AsType[genai.APIError](err)
	if !ok {
		return true
	}
	switch api.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return api.Code < 400 || api.Code >= 500
}
