package usage

import (
	"cmp"
	"slices"
	"strings"
)

// Makers and clouds stand in front of a model's name without changing its price:
// who made the model, and who sells it at the maker's price. The spellings are
// those of LiteLLM, OpenRouter, genai-prices, Vertex AI and ADK. Resellers with
// prices of their own are not among them.
var (
	makers = []string{
		"gemini", "google", "google_genai", "googleai", "openai", "anthropic", "mistral", "mistralai",
		"xai", "x-ai", "deepseek", "deepseek-ai", "cohere", "cohere_chat", "meta", "meta-llama",
		"qwen", "dashscope", "moonshot", "moonshotai", "minimax", "zai", "z-ai", "zhipuai", "perplexity",
		"voyage", "voyageai", "ai21", "writer", "amazon",
	}
	clouds = []string{
		"vertex_ai", "vertexai", "vertex", "google-vertex", "azure", "azure_ai", "azure_openai",
		"bedrock", "bedrock_converse", "converse", "amazon-bedrock", "aws",
	}
)

// regionSegments follow the name of a cloud in LiteLLM's names.
var regionSegments = []string{"us", "eu", "global", "global-standard"}

// bedrockRegions and bedrockVendors stand in front of a model's name at Amazon
// Bedrock, each with a dot (Amazon Bedrock user guide, inference profiles and
// model ids).
var (
	bedrockRegions = []string{"us", "eu", "apac", "global", "au", "jp", "ca", "us-gov"}
	bedrockVendors = []string{
		"anthropic", "amazon", "meta", "mistral", "cohere", "ai21", "deepseek", "openai", "qwen", "writer",
		"google", "moonshot", "moonshotai", "minimax", "nvidia", "zai",
	}
)

// origin says what was left out in front of a name; the smaller one is nearer.
type origin uint8

const (
	asIs       origin = iota
	fromMaker         // a maker, or the path of a resource
	fromCloud         // a cloud, or what was configured
	fromRegion        // a region of Amazon Bedrock, where some prices differ
)

// namer finds the forms of a name that a catalogue may have it under.
type namer struct{ prefixes map[string]origin }

func newNamer(more []string) namer {
	n := namer{prefixes: make(map[string]origin, len(makers)+len(clouds)+len(more))}
	for _, p := range more {
		if p = strings.Trim(lower(p), "/"); p != "" {
			n.prefixes[p] = fromCloud
		}
	}
	for _, p := range clouds {
		n.prefixes[p] = fromCloud
	}
	for _, p := range makers {
		n.prefixes[p] = fromMaker
	}
	return n
}

// form is a name with something left out.
type form struct {
	name string
	// origin is the farthest of what was left out in front, and noSuffix says that
	// something was left out at the end.
	origin   origin
	noSuffix bool
	// date is the date that was left out, as YYYYMMDD or as far as it says; of
	// what means the newest it is "~", which sorts behind all dates.
	date string
}

// forms are the forms of a name in lower case, itself first, longest first.
func (n namer) forms(name string) []form {
	out := make([]form, 0, 8)
	add := func(f form) {
		for {
			out = append(out, f)
			rest, date, ok := cutSuffix(f.name)
			if !ok {
				return
			}
			f.name, f.noSuffix, f.date = rest, true, max(f.date, date)
		}
	}
	f := form{name: name}
	for {
		add(f)
		rest, from := n.cutPrefix(f.name)
		if from == asIs {
			break
		}
		f.name, f.origin = rest, max(f.origin, from)
	}
	slices.SortStableFunc(out, func(a, b form) int { return cmp.Compare(len(b.name), len(a.name)) })
	return out
}

// cutPrefix leaves out one thing in front of a name, and says what it was.
func (n namer) cutPrefix(name string) (rest string, from origin) {
	if strings.HasPrefix(name, "arn:") {
		return afterSlash(name, strings.LastIndexByte(name, '/'), fromMaker)
	}
	if strings.HasPrefix(name, "projects/") || strings.HasPrefix(name, "publishers/") {
		if i := strings.Index(name, "/models/"); i >= 0 {
			return afterSlash(name, i+len("/models"), fromMaker)
		}
	}
	if strings.HasPrefix(name, "models/") {
		return afterSlash(name, len("models"), fromMaker)
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		if from := n.prefixes[name[:i]]; from != asIs {
			rest, from := afterSlash(name, i, from)
			if segment, after, more := strings.Cut(rest, "/"); more && after != "" && from == fromCloud && region(segment) {
				return after, from
			}
			return rest, from
		}
	}
	segment, rest, dot := strings.Cut(name, ".")
	if dot && rest != "" {
		if slices.Contains(bedrockVendors, segment) {
			return rest, fromCloud
		}
		if slices.Contains(bedrockRegions, segment) {
			if vendor, _, more := strings.Cut(rest, "."); more && slices.Contains(bedrockVendors, vendor) {
				return rest, fromRegion
			}
		}
	}
	return "", asIs
}

// region reports whether a part of a path names a region, such as "eu" or
// "us-east-1".
func region(segment string) bool {
	if slices.Contains(regionSegments, segment) {
		return true
	}
	area, rest, ok := strings.Cut(segment, "-")
	return ok && len(area) == 2 && strings.Contains(rest, "-") && digits(rest[strings.LastIndexByte(rest, '-')+1:])
}

// afterSlash is what follows the slash at i, if anything does.
func afterSlash(name string, i int, from origin) (string, origin) {
	if i < 0 || i+1 >= len(name) {
		return "", asIs
	}
	return name[i+1:], from
}

// cutSuffix leaves out one thing at the end of a name, and says what date it was.
func cutSuffix(name string) (rest, date string, ok bool) {
	for _, latest := range [...]string{"-latest", "@latest", ":latest", "@default"} {
		if rest, ok := strings.CutSuffix(name, latest); ok && rest != "" {
			return rest, "~", true
		}
	}
	// Amazon Bedrock: "-v1:0".
	if i := strings.LastIndex(name, "-v"); i > 0 {
		if major, minor, colon := strings.Cut(name[i+2:], ":"); colon && major != "" && minor != "" && digits(major) && digits(minor) {
			return name[:i], "", true
		}
	}
	for _, layout := range [...]string{"-YYYY-MM-DD", "-YYYYMMDD", "@YYYYMMDD", "-MM-YYYY", "-MM-DD"} {
		if date, ok := cutDate(name, layout); ok && len(name) > len(layout) {
			return name[:len(name)-len(layout)], date, true
		}
	}
	return "", "", false
}

// cutDate reads a date at the end of a name, if there is one that may be right.
func cutDate(name, layout string) (date string, ok bool) {
	if len(name) <= len(layout) {
		return "", false
	}
	end := name[len(name)-len(layout):]
	var year, month, day int
	hasYear, hasDay := false, false
	for i := range len(layout) {
		c := end[i]
		if layout[i] == '-' || layout[i] == '@' {
			if c != layout[i] {
				return "", false
			}
			continue
		}
		if c < '0' || c > '9' {
			return "", false
		}
		switch d := int(c - '0'); layout[i] {
		case 'Y':
			year, hasYear = year*10+d, true
		case 'M':
			month = month*10 + d
		case 'D':
			day, hasDay = day*10+d, true
		}
	}
	if hasYear && (year < 2015 || year > 2099) || month < 1 || month > 12 || hasDay && (day < 1 || day > 31) {
		return "", false
	}
	b := make([]byte, 0, 8)
	for _, n := range [...]struct{ n, width int }{{year, 1000}, {month, 10}, {day, 10}} {
		for w := n.width; w > 0; w /= 10 {
			b = append(b, byte('0'+n.n/w%10))
		}
	}
	return string(b), true
}
