package machine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
)

// IssueToken calls the unexported issueToken with the current time.
func IssueToken(
	ctx context.Context,
	a *Activities,
	m *v1alpha1.Machine,
	attempt string,
	expires time.Time,
) (kube.TokenRef, error) {
	return a.issueToken(ctx, m, attempt, expires, time.Now())
}

// MaxTokenNames exports maxTokenNameAttempts.
const MaxTokenNames = maxTokenNameAttempts

// TokenName returns the name of the Secret that an attempt tries after n names were already in use.
func TokenName(uid, attempt string, n int) string {
	return kube.TokenSecretNamePrefix + deriveTokenID(types.UID(uid), attempt, n)
}
