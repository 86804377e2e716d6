package activities

import (
	"context"

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

// DeletePoll is how long to wait before the next look at an instance whose deletion was requested that long ago.
var DeletePoll = deletePoll
