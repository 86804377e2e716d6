package preflight

import (
	"strconv"
	"strings"
)

// version is what counts of a version of Kubernetes.
type version struct {
	major, minor uint64
	text         string // without the leading v
}

// parse reads v1.31.2, with or without v, patch, pre-release and build: 1.31, v1.31.2-beta.0 and v1.31.2+vendor.1 have
// the same major and minor. Nothing is read from an empty text, and that is all right.
func parse(text string) (v *version, ok bool) {
	if text == "" {
		return nil, true
	}
	text = strings.TrimPrefix(text, "v")
	core, _, _ := strings.Cut(text, "+")
	core, _, _ = strings.Cut(core, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) < 2 || len(numbers) > 3 {
		return nil, false
	}
	var parsed [3]uint64
	for i, number := range numbers {
		n, err := strconv.ParseUint(number, 10, 32) // 32: sums of these do not overflow
		if err != nil {
			return nil, false
		}
		parsed[i] = n
	}
	return &version{major: parsed[0], minor: parsed[1], text: text}, true
}
