package activities

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"millwright/provider"
)

// What tests of steps inside an activity call.
var (
	IssueToken = (*Activities).issueToken
	Render     = render
)

// UserData returns what an instance is started with, without the token in it.
func UserData(ctx context.Context, p *Provider, class provider.Class, machine string, ref TokenRef) ([]byte, *Problem, error) {
	data, _, problem, err := p.userData(ctx, class, machine, ref)
	return data, problem, err
}

// MaxTokenNames is how many names of a token the tests have to take.
const MaxTokenNames = maxTokenNames

// TokenName returns the name of the Secret that an attempt wants once n others are taken.
func TokenName(uid, attempt string, n int) string {
	return tokenPrefix + tokenID(types.UID(uid), attempt, n)
}

// Endings is what a worker remembers of the ends of instances.
type Endings = endings

// Looks plays the end of an instance that is gone a time after the cloud was asked, where each look comes late by a lag: it returns
// when that is seen, and by how many looks.
func (e *endings) Looks(class string, asked time.Time, ends, lag time.Duration) (seen time.Duration, looks int32) {
	a := asking{at: asked, first: e.first(class, asked)}
	for attempt := int32(1); ; attempt++ {
		if seen >= ends {
			e.gone(class, seen, a, attempt)
			return seen, attempt
		}
		seen += e.next(class, seen, &a, attempt) + lag
	}
}
