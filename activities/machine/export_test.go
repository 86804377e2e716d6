package machine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
)

// IssueToken is the step of the activity of that name.
func IssueToken(
	ctx context.Context,
	a *Activities,
	m *v1alpha1.Machine,
	attempt string,
	expires time.Time,
) (kube.TokenRef, error) {
	return a.issueToken(ctx, m, attempt, expires, time.Now())
}

// MaxTokenNames is how many taken names are tried.
const MaxTokenNames = maxTokenNames

// TokenName returns the name of the Secret that an attempt wants once n others are taken.
func TokenName(uid, attempt string, n int) string {
	return kube.TokenPrefix + tokenID(types.UID(uid), attempt, n)
}
