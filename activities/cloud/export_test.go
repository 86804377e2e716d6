package cloud

import (
	"context"
	"time"

	"millwright/activities/kube"
	"millwright/provider"
)

// IsFirstCloudCall is isFirstCloudCall, for tests.
var IsFirstCloudCall = isFirstCloudCall

// RenderUserData is renderUserData, for tests.
var RenderUserData = renderUserData

// InstanceUserData is Provider.instanceUserData without the token, for tests.
func InstanceUserData(
	ctx context.Context,
	p *Activities,
	class provider.Class,
	machine string,
	ref kube.TokenRef,
) ([]byte, *kube.Problem, error) {
	data, _, problem, err := p.instanceUserData(ctx, class, kube.Ref{Namespace: "shop", Name: machine}, ref, time.Now())
	return data, problem, err
}

// AttemptDetail is attemptDetail, for tests.
type AttemptDetail = attemptDetail
