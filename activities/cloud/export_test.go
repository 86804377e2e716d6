package cloud

import (
	"context"

	"millwright/activities/kube"
	"millwright/provider"
)

// Render fills in a template of user data.
var Render = render

// UserData returns what an instance is started with, without the token in it.
func UserData(ctx context.Context, p *Provider, class provider.Class, machine string, ref kube.TokenRef) ([]byte, *kube.Problem, error) {
	data, _, problem, err := p.userData(ctx, class, machine, ref)
	return data, problem, err
}
