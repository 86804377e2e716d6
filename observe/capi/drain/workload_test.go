package drain_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/observe/cache"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
)

const token = "canary-token"

// newKubeconfig returns a kubeconfig whose user has this token.
func newKubeconfig(t *testing.T, host string, change ...func(*clientcmdapi.Config)) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: host}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	for _, f := range change {
		f(config)
	}
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return text
}

func kubeconfigSecret(version string, value []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       capitest.Shop,
			Name:            "c-kubeconfig",
			UID:             "uid-secret",
			ResourceVersion: version,
		},
		Data: map[string][]byte{"value": value},
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

// connections records the clients that were made.
type connections struct {
	hosts  []string
	client kubernetes.Interface
}

func (c *connections) connect(config *rest.Config, _, _ string) (kubernetes.Interface, error) {
	c.hosts = append(c.hosts, config.Host)
	if config.BearerToken != token {
		return nil, errors.New(config.BearerToken)
	}
	return c.client, nil
}

func TestTheClientOfAWorkloadClusterIsMadeAgainWhenItsSecretChanges(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "all"}}
	secrets := kubefake.NewClientset(kubeconfigSecret("1", newKubeconfig(t, "https://one")))
	made := &connections{client: kubefake.NewClientset(budget)}
	c := newWorkloadClusters(t, secrets, made.connect)
	get := func() (*cache.Target, func()) {
		cluster, release, err := c.Target(t.Context(), capitest.Shop, "c")
		require.NoError(t, err)
		return cluster, release
	}
	first, release := get()
	second, releaseSecond := get()
	assert.Same(t, first, second)
	assert.Equal(t, []string{"https://one"}, made.hosts)
	require.NoError(t, c.StartCaches(t.Context(), first))
	assert.Len(t, first.Informer(cache.Budgets).GetStore().List(), 1)

	_, err := secrets.CoreV1().
		Secrets(capitest.Shop).
		Update(t.Context(), kubeconfigSecret("2", newKubeconfig(t, "https://two")), metav1.UpdateOptions{})
	require.NoError(t, err)
	other, releaseOther := get()
	assert.NotSame(t, first, other)
	assert.Equal(t, []string{"https://one", "https://two"}, made.hosts)
	assert.False(t, first.Informer(cache.Budgets).IsStopped(), "who uses the former one goes on")
	release()
	release()
	releaseSecond()
	require.Eventually(
		t,
		first.Informer(cache.Budgets).IsStopped,
		2*time.Minute,
		time.Millisecond,
		"its last user has left",
	)
	releaseOther()
	again, releaseAgain := get()
	defer releaseAgain()
	assert.Same(t, other, again, "it is kept for the next drain")
}

func TestTheCachesOfAWorkloadClusterEndSomeTimeAfterItsLastDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secrets := kubefake.NewClientset(kubeconfigSecret("1", newKubeconfig(t, "https://one")))
		made := &connections{client: kubefake.NewClientset()}
		c := newWorkloadClusters(t, secrets, made.connect)
		cluster, release, err := c.Target(t.Context(), capitest.Shop, "c")
		require.NoError(t, err)
		require.NoError(t, c.StartCaches(t.Context(), cluster))
		time.Sleep(time.Hour)
		assert.False(t, cluster.Informer(cache.Budgets).IsStopped(), "a drain may take long")
		release()
		time.Sleep(9 * time.Minute)
		assert.False(t, cluster.Informer(cache.Budgets).IsStopped())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.True(t, cluster.Informer(cache.Budgets).IsStopped())
		again, release, err := c.Target(t.Context(), capitest.Shop, "c")
		require.NoError(t, err)
		defer release()
		assert.NotSame(t, cluster, again)
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
		"no YAML":    {[]byte("users: [" + token), "the value of value is no kubeconfig"},
		"no context": {with(func(c *clientcmdapi.Config) { c.CurrentContext = token }), "its kubeconfig has no context that can be used"},
		"no client": {with(user(func(u *clientcmdapi.AuthInfo) {
			u.Token = token +
				"-other"
		})), "its kubeconfig has certificates or keys that cannot be used"},
		"a program":  {with(user(func(u *clientcmdapi.AuthInfo) { u.Exec = &clientcmdapi.ExecConfig{Command: token, APIVersion: "v1"} })), "its kubeconfig names a program that gives credentials, which Millwright does not use"},
		"a provider": {with(user(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: token} })), "its kubeconfig names an authentication provider, which Millwright does not use"},
		"a token": {with(user(func(u *clientcmdapi.AuthInfo) {
			u.TokenFile = "/" +
				token
		})), "its kubeconfig names a file with credentials, which Millwright does not use"},
		"a key": {with(user(func(u *clientcmdapi.AuthInfo) {
			u.ClientKey = "/" +
				token
		})), "its kubeconfig names a file with credentials, which Millwright does not use"},
		"a CA bundle": {with(func(c *clientcmdapi.Config) {
			c.Clusters["c"].CertificateAuthority = "/" +
				token
		}), "its kubeconfig names a file with certificates, which Millwright does not use"},
	} {
		t.Run(name, func(t *testing.T) {
			made := &connections{client: kubefake.NewClientset()}
			c := newWorkloadClusters(t, kubefake.NewClientset(kubeconfigSecret("1", row.value)), made.connect)
			_, _, err := c.Target(t.Context(), capitest.Shop, "c")
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
	_, _, err := c.Target(t.Context(), capitest.Shop, "c")
	require.ErrorIs(t, err, capidrain.ErrNoKubeconfig)
	assert.ErrorContains(t, err, "Secret shop/c-kubeconfig does not exist")
}
