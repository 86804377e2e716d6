package cloud

import (
	"context"
	"time"

	"millwright/activities/kube"
	"millwright/provider"
)

// IsFirst reports whether no attempt of an activity can have called the cloud before.
var IsFirst = isFirst

// Render renders a template of user data.
var Render = render

// UserData returns the user data of an instance, without the token.
func UserData(
	ctx context.Context,
	p *Provider,
	class provider.Class,
	machine string,
	ref kube.TokenRef,
) ([]byte, *kube.Problem, error) {
	data, _, problem, err := p.userData(ctx, class, machine, ref, time.Now())
	return data, problem, err
}

// Attempt is the detail of the heartbeats of an attempt.
type Attempt = attempt
