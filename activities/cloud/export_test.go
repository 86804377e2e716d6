package cloud

import (
	"context"
	"time"

	"millwright/activities/kube"
	"millwright/provider"
)

// IsFirst is isFirstAttempt, for tests.
var IsFirst = isFirstAttempt

// Render is renderUserData, for tests.
var Render = renderUserData

// UserData is Provider.instanceUserData without the token, for tests.
func UserData(
	ctx context.Context,
	p *Provider,
	class provider.Class,
	machine string,
	ref kube.TokenRef,
) ([]byte, *kube.Problem, error) {
	data, _, problem, err := p.instanceUserData(ctx, class, machine, ref, time.Now())
	return data, problem, err
}

// Attempt is attemptDetail, for tests.
type Attempt = attemptDetail
