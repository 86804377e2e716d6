package kube_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
)

func TestAWriteThatIsTooLargeIsRefused(t *testing.T) {
	err := kube.WriteError(
		t.Context(),
		kube.Ref{Namespace: "shop", Name: "s"},
		apierrors.NewRequestEntityTooLargeError("3 MiB"),
	)
	_, refused := kube.FailureOfType(err, kube.TypeRefused)
	assert.True(t, refused)
}

// While an admission webhook is down, the API server answers 500. During a leader election of etcd, the API server
// answers 500 for about a second.
func TestAnInternalErrorThatLastsIsRefused(t *testing.T) {
	down := apierrors.NewInternalError(errors.New(`failed calling webhook "dead.example.com": connection refused`))
	insist := func(ctx context.Context, _ string) (string, error) {
		return "", kube.WriteError(ctx, kube.Ref{Namespace: "shop", Name: "s"}, down)
	}
	for tried, refused := range map[time.Duration]bool{0: false, time.Second: false, 5 * time.Second: true} {
		_, err := activitiestest.ExecuteActivity[string](t, insist, "", activitiestest.Worker{Tried: tried}.ExecuteActivity)
		require.ErrorContains(t, err, "connection refused")
		kind, retryable := activitiestest.FailureTypeOf(t, err)
		assert.Equal(t, refused, kind == kube.TypeRefused, "after %v", tried)
		assert.Equal(t, !refused, retryable, "after %v", tried)
	}
}
