package target_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"millwright/observe/target"
)

func TestClientIsKeptIfOnlyTheTokenChanges(t *testing.T) {
	server, secrets := &fakeAPIServer{}, kubefake.NewClientset(newKubeconfigSecret("shop", "https://a", "old"))
	clients := target.NewClientFactory(secrets.CoreV1(), target.Options{
		SecretName: secretName, KubeconfigKey: "kubeconfig",
		NewClient: func(config *rest.Config) (kubernetes.Interface, error) {
			config.Transport = server
			return kubernetes.NewForConfig(config)
		},
	})
	var made []kubernetes.Interface
	for _, secret := range []struct{ host, token string }{
		{"https://a", "old"}, {"https://a", "new"}, {"https://b", "new"},
	} {
		_, err := secrets.CoreV1().Secrets("shop").
			Update(t.Context(), newKubeconfigSecret("shop", secret.host, secret.token), metav1.UpdateOptions{})
		require.NoError(t, err)
		client, err := clients.Client(t.Context(), "shop")
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Equal(t, "/api/v1/nodes  Bearer "+secret.token, server.lastRequest())
		made = append(made, client)
	}
	assert.Same(t, made[0], made[1])
	assert.NotSame(t, made[0], made[2])
	_, err := clients.Client(t.Context(), "other")
	assert.EqualError(
		t,
		err,
		"the target cluster of namespace other is not known: Secret other/target with a kubeconfig does not exist",
	)
}
