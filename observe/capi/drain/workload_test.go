package drain_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/observe/cache"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
)

const testToken = "canary-token"

// newKubeconfig returns a kubeconfig whose user has the token.
func newKubeconfig(t *testing.T, host string, change ...func(*clientcmdapi.Config)) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: host}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: testToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	for _, f := range change {
		f(config)
	}
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return text
}

func kubeconfigSecret(value []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: capitest.Namespace, Name: "c-kubeconfig"},
		Data:       map[string][]byte{"value": value},
	}
}

// newWorkloadClusters returns the workload clusters of a management cluster with these Secrets.
func newWorkloadClusters(
	t *testing.T,
	secrets kubernetes.Interface,
	connect func(*rest.Config, string, string) (kubernetes.Interface, error),
) *capidrain.WorkloadClusters {
	return capidrain.NewWorkloadClusters(t.Context(), capidrain.ClusterAccess{SecretsClient: secrets, Connect: connect})
}

// connectionRecorder records the clients that were made. Without a client of its own, it makes clients that record the
// tokens of their requests.
type connectionRecorder struct {
	hosts, tokens []string
	client        kubernetes.Interface
}

func (c *connectionRecorder) connect(config *rest.Config, _, _ string) (kubernetes.Interface, error) {
	c.hosts = append(c.hosts, config.Host)
	if c.client != nil {
		return c.client, nil
	}
	config.Transport = c
	return kubernetes.NewForConfig(config)
}

// RoundTrip implements http.RoundTripper.
func (c *connectionRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	c.tokens = append(c.tokens, request.Header.Get("Authorization"))
	return nil, errors.New("no API server")
}

// workloadTestEnv is a management cluster with one Cluster.
type workloadTestEnv struct {
	*capidrain.WorkloadClusters
	t             *testing.T
	secretsClient *kubefake.Clientset
	connectionRecorder
}

func newWorkloadTestEnv(t *testing.T, client kubernetes.Interface) *workloadTestEnv {
	t.Helper()
	w := &workloadTestEnv{t: t, secretsClient: kubefake.NewClientset(kubeconfigSecret(newKubeconfig(t, "https://one")))}
	w.client = client
	w.WorkloadClusters = newWorkloadClusters(t, w.secretsClient, w.connect)
	return w
}

func (w *workloadTestEnv) target() *cache.Target {
	w.t.Helper()
	target, err := w.Target(w.t.Context(), capitest.Namespace, "c")
	require.NoError(w.t, err)
	return target
}

func (w *workloadTestEnv) updateSecret(s *corev1.Secret) {
	w.t.Helper()
	_, err := w.secretsClient.CoreV1().Secrets(capitest.Namespace).Update(w.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func TestAChangedKubeconfigMakesANewClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "all"}}
		w := newWorkloadTestEnv(t, kubefake.NewClientset(budget))
		first := w.target()
		assert.Nil(t, first.Informer(cache.DisruptionBudgetsResource), "no drain needs the caches yet")
		release, err := first.UseDrainCaches(t.Context())
		require.NoError(t, err)
		budgets := first.Informer(cache.DisruptionBudgetsResource)
		assert.Len(t, budgets.GetStore().List(), 1, "a drain begins with filled caches")

		touched := kubeconfigSecret(newKubeconfig(t, "https://one"))
		touched.ResourceVersion, touched.Labels = "99", map[string]string{"touched": "now"}
		w.updateSecret(touched)
		assert.Same(t, first, w.target())
		assert.Equal(t, []string{"https://one"}, w.hosts)

		w.updateSecret(kubeconfigSecret(newKubeconfig(t, "https://two")))
		other := w.target()
		assert.NotSame(t, first, other)
		assert.Same(t, other, w.target())
		assert.Equal(t, []string{"https://one", "https://two"}, w.hosts)
		time.Sleep(time.Hour)
		assert.False(t, budgets.IsStopped(), "who uses the former one goes on")
		release()
		release()
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		assert.True(t, budgets.IsStopped(), "its last user has left")
	})
}

func TestANewTokenOfAWorkloadClusterIsUsedWithoutANewClient(t *testing.T) {
	w := newWorkloadTestEnv(t, nil)
	first := w.target()
	for _, next := range []string{testToken, "next"} {
		w.updateSecret(kubeconfigSecret(newKubeconfig(t, "https://one", func(c *clientcmdapi.Config) {
			c.AuthInfos["u"].Token = next
		})))
		assert.Same(t, first, w.target())
		_, err := first.Client().CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		require.Error(t, err)
	}
	assert.Equal(t, []string{"Bearer " + testToken, "Bearer next"}, w.tokens)
	assert.Equal(t, []string{"https://one"}, w.hosts)
}

func TestCachesOfAnIdleWorkloadClusterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkloadTestEnv(t, kubefake.NewClientset())
		cluster := w.target()
		release, err := cluster.UseDrainCaches(t.Context())
		require.NoError(t, err)
		budgets := cluster.Informer(cache.DisruptionBudgetsResource)
		time.Sleep(50 * time.Minute)
		assert.False(t, budgets.IsStopped(), "a drain may take long")
		release()
		time.Sleep(9 * time.Minute)
		assert.False(t, budgets.IsStopped())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.True(t, budgets.IsStopped())
		again := w.target()
		assert.NotSame(t, cluster, again, "an unused client is forgotten")
		for range 2 {
			time.Sleep(59 * time.Minute)
			assert.Same(t, again, w.target(), "each drain keeps it")
		}
	})
}

func TestUnusableKubeconfigsAreRefused(t *testing.T) {
	user := func(change func(*clientcmdapi.AuthInfo)) func(*clientcmdapi.Config) {
		return func(c *clientcmdapi.Config) { change(c.AuthInfos["u"]) }
	}
	with := func(change func(*clientcmdapi.Config)) []byte { return newKubeconfig(t, "https://one", change) }
	for name, row := range map[string]struct {
		value []byte
		why   string
	}{
		"no value":   {nil, "it has no key value"},
		"no YAML":    {[]byte("users: [" + testToken), "the value of value is no kubeconfig"},
		"no context": {with(func(c *clientcmdapi.Config) { c.CurrentContext = testToken }), "its kubeconfig has no context that can be used"},
		"no client": {with(user(func(u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = []byte(testToken), []byte(testToken)
		})), "its kubeconfig has certificates or keys that cannot be used"},
		"a program": {with(user(func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: testToken, APIVersion: "v1"}
		})), "its kubeconfig names a program that gives credentials, which Millwright does not use"},
		"a provider": {with(user(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: testToken} })), "its kubeconfig names an authentication provider, which Millwright does not use"},
		"a token": {with(user(func(u *clientcmdapi.AuthInfo) {
			u.TokenFile = "/" +
				testToken
		})), "its kubeconfig names a file with credentials, which Millwright does not use"},
		"a key": {with(user(func(u *clientcmdapi.AuthInfo) {
			u.ClientKey = "/" +
				testToken
		})), "its kubeconfig names a file with credentials, which Millwright does not use"},
		"a CA bundle": {with(func(c *clientcmdapi.Config) {
			c.Clusters["c"].CertificateAuthority = "/" +
				testToken
		}), "its kubeconfig names a file with certificates, which Millwright does not use"},
	} {
		t.Run(name, func(t *testing.T) {
			connect := func(config *rest.Config, _, _ string) (kubernetes.Interface, error) {
				return kubernetes.NewForConfig(config)
			}
			c := newWorkloadClusters(t, kubefake.NewClientset(kubeconfigSecret(row.value)), connect)
			_, err := c.Target(t.Context(), capitest.Namespace, "c")
			require.ErrorIs(t, err, capidrain.ErrNoKubeconfig)
			assert.EqualError(
				t,
				err,
				fmt.Sprintf("no kubeconfig can be used: Secret shop/c-kubeconfig: %s", row.why),
				"and nothing of its content",
			)
		})
	}
	c := newWorkloadClusters(t, kubefake.NewClientset(), nil)
	_, err := c.Target(t.Context(), capitest.Namespace, "c")
	require.ErrorIs(t, err, capidrain.ErrNoKubeconfig)
	assert.ErrorContains(t, err, "Secret shop/c-kubeconfig does not exist")

	secrets := kubefake.NewClientset()
	secrets.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "c-kubeconfig", nil)
	})
	_, err = newWorkloadClusters(t, secrets, nil).Target(t.Context(), capitest.Namespace, "c")
	require.ErrorIs(t, err, capidrain.ErrNoKubeconfig)
	assert.ErrorContains(t, err, "add the namespace to the chart's value clusterAPI.drainNamespaces")
}
