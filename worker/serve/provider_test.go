package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/process"
)

func TestASecretOfAnotherNamespaceNeedsConsentByDefault(t *testing.T) {
	for unasked, arguments := range map[bool][]string{false: nil, true: {"--allow-secrets-without-consent"}} {
		var flags CloudFlags
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags.Register(set)
		require.NoError(t, set.Parse(arguments))
		var calls cloud.Activities
		flags.PrepareActivities(&calls, "prod", "fake", NewCloudMetrics(prometheus.NewRegistry()), false)
		assert.Zero(t, calls.NamespaceCalls)
		assert.Equal(t, "prod", calls.Cluster)
		assert.Equal(t, unasked, calls.UnaskedSecrets)
		assert.Equal(t, kube.DefaultMaxExhaustedBackOff, calls.ExhaustedRetry)
	}
}

func TestANamespaceWithItsOwnTargetGetsAQuarterOfTheCalls(t *testing.T) {
	for most, want := range map[int]int{200: 50, 8: 2, 3: 1, 1: 1} {
		flags, calls := CloudFlags{MaxConcurrentCalls: most}, cloud.Activities{}
		flags.PrepareActivities(&calls, "prod", "fake", NewCloudMetrics(prometheus.NewRegistry()), true)
		assert.Equal(t, want, calls.NamespaceCalls)
	}
}

// Reads of a class and its Secret for a cloud call have their own rate limit, so that status writes of other machines
// do not delay the call.
func TestReadsForCloudCallsHaveTheirOwnRateLimit(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"a","clusters":[{"name":"a","cluster":{"server":"` +
		api.URL + `"}}],` +
		`"contexts":[{"name":"a","context":{"cluster":"a"}}]}`
	require.NoError(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	// with QPS 1e-6, the client sends one request in eleven days
	flags := process.Flags{Kubeconfig: kubeconfig, QPS: 1e-6, Burst: 1}
	var calls, reports cloud.Activities
	require.NoError(t, CreateProviderClients(flags, "test", &calls))
	require.NoError(t, CreateProviderClients(flags, "test", &reports))

	// the client fails at once if the rate limiter would make it wait longer than this hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	answered := func(p *cloud.Activities) bool {
		_, err := p.Secrets.CoreV1().Secrets("shop").Get(ctx, "keys", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	require.True(t, answered(&reports))
	require.False(t, answered(&reports), "the rate is in force")
	assert.True(t, answered(&calls))
	_, err := calls.Classes.MachineV1alpha1().MachineClasses("shop").Get(ctx, "small", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), err)
}
