package activitiestest

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
)

const TokenNamespace = "kube-system" // namespace of bootstrap tokens

var SecretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

// TokenExpiration is the expiration of the tokens of the tests. TokenExpiration has a fraction of a second, which the
// tokens' Secrets cannot store.
func TokenExpiration() time.Time {
	return time.Now().Truncate(time.Second).Add(20*time.Minute + time.Nanosecond)
}

// TokenSecret returns the current Secret of a token from the API server; nil if the Secret is gone.
func (w *World) TokenSecret(ref kube.TokenRef) *corev1.Secret {
	object, err := w.TargetClient.Tracker().Get(SecretsResource, ref.Namespace, ref.Name)
	if err != nil {
		return nil
	}
	return object.(*corev1.Secret)
}

// TokenSecretNames returns the names of all Secrets in kube-system.
func (w *World) TokenSecretNames() []string {
	w.T.Helper()
	list, err := w.TargetClient.CoreV1().Secrets(TokenNamespace).List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	names := []string{}
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

// RevokeTokensTwice revokes the tokens of a machine twice, as Temporal does after a lost answer.
func (w *World) RevokeTokensTwice(m *v1alpha1.Machine) {
	w.T.Helper()
	_, err := RunActivity[any](w, (&machine.Activities{Kube: w.Kube}).RevokeTokens, NewRef(m))
	require.NoError(w.T, err)
	left := w.TokenSecretNames()
	_, err = RunActivity[any](w, (&machine.Activities{Kube: w.Kube}).RevokeTokens, NewRef(m))
	require.NoError(w.T, err, "again")
	assert.Equal(w.T, left, w.TokenSecretNames())
}

// ChangeTokenSecret changes a value in the Secret of a token.
func (w *World) ChangeTokenSecret(ref kube.TokenRef, key, value string) {
	w.APIServer.patchAsOtherClient(w.TargetClient.Tracker(), SecretsResource, ref.Namespace, ref.Name,
		map[string]any{"data": map[string]any{key: base64.StdEncoding.EncodeToString([]byte(value))}})
}

// NewTokenSecret returns the Secret of the bootstrap token for the first attempt of machine m.
func NewTokenSecret(change ...func(*corev1.Secret)) *corev1.Secret {
	name := "bootstrap-token-woaoc8" // Secret name for the token ID of machine uid-m, attempt 1
	s := &corev1.Secret{Type: corev1.SecretTypeBootstrapToken, ObjectMeta: metav1.ObjectMeta{
		Namespace:       TokenNamespace,
		Name:            name,
		UID:             "uid-of-token",
		ResourceVersion: "900",
		Labels: map[string]string{
			v1alpha1.LabelMachineUID: "uid-m",
		},
		Annotations: map[string]string{v1alpha1.AnnotationAttempt: "1"},
	}}
	s.Data = map[string][]byte{
		"token-id":     []byte(strings.TrimPrefix(name, "bootstrap-token-")),
		"token-secret": []byte("0123456789abcdef"),
		"expiration":   []byte(time.Now().UTC().Add(time.Hour).Format(time.RFC3339)),
	}
	return ApplyChanges(s, change)
}
