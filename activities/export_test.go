package activities

import (
	"cmp"
	"context"
	"slices"
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
	all, looks := e.Together(class, asked, []time.Duration{ends}, lag)
	return all[0], looks
}

// Together is Looks for several instances whose deletion is asked for at the same time.
func (e *endings) Together(class string, asked time.Time, ends []time.Duration, lag time.Duration) (seen []time.Duration, looks int32) {
	calls, open := make([]*asking, len(ends)), make([]int, len(ends))
	seen = make([]time.Duration, len(ends))
	attempts := make([]int32, len(ends))
	for i := range ends {
		calls[i], open[i] = e.begin(class, asked, true), i
	}
	for len(open) > 0 {
		slices.SortStableFunc(open, func(a, b int) int { return cmp.Compare(seen[a], seen[b]) })
		i := open[0]
		attempts[i]++
		looks++
		if seen[i] >= ends[i] {
			e.gone(class, calls[i], attempts[i])
			open = open[1:]
			continue
		}
		seen[i] += e.next(class, seen[i], calls[i], attempts[i]) + lag
	}
	return seen, looks
}

// Tries reports whether a call that begins then looks before the usual time, to learn whether that does.
func (e *endings) Tries(class string, at time.Time) bool {
	_, tries := e.first(class, at)
	return tries
}

// Overtaken plays two instances that are asked for at the same time: the first takes so long, and the second is gone when it is looked at.
func (e *endings) Overtaken(class string, asked time.Time, slow time.Duration) {
	second := e.begin(class, asked, true)
	e.next(class, 0, second, 1)
	e.Looks(class, asked, slow, 0)
	e.gone(class, second, 2)
}
