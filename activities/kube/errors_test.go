package kube_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/kube"
)

// A retry of a write that is too large is refused, too.
func TestAWriteThatIsTooLargeIsRefused(t *testing.T) {
	for name, err := range map[string]error{
		"by the API server":          apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		"by etcd":                    apierrors.NewInternalError(errors.New("etcdserver: request is too large")),
		"by the API server's client": apierrors.NewInternalError(errors.New("rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100000 vs. 2097152)")),
	} {
		_, refused := kube.Failure(kube.WriteError(kube.Ref{Namespace: "shop", Name: "s"}, err), kube.TypeRefused)
		assert.True(t, refused, name)
	}
	_, refused := kube.Failure(
		kube.WriteError(kube.Ref{}, apierrors.NewInternalError(errors.New("away"))),
		kube.TypeRefused,
	)
	assert.False(t, refused, "what may pass is retried")
}
