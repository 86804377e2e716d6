package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TokenRef names the Secret of a bootstrap token in the target cluster. It holds no secret data. The zero value means that
// the machine needs no token.
type TokenRef struct {
	Namespace string
	Name      string
}

// The form of a bootstrap token. Source: Kubernetes, "Authenticating with Bootstrap Tokens".
const (
	TokenPrefix       = "bootstrap-token-" // before the id, in the name of the Secret
	TokenSecretLength = 16

	TokenIDKey          = "token-id"
	TokenSecretKey      = "token-secret"
	TokenExpirationKey  = "expiration"
	TokenGroupsKey      = "auth-extra-groups"
	TokenDescriptionKey = "description"
	TokenAuthKey        = "usage-bootstrap-authentication"
	TokenSigningKey     = "usage-bootstrap-signing"
)

// ReadToken returns the token in a Secret, in the form that an instance presents, and when it expires. A token is not usable
// when it has expired, never expires, or is being deleted, or the Secret is no bootstrap token.
func ReadToken(secret *corev1.Secret, now time.Time) (token string, expires time.Time, usable bool) {
	id, half := string(secret.Data[TokenIDKey]), string(secret.Data[TokenSecretKey])
	expires, err := time.Parse(time.RFC3339, string(secret.Data[TokenExpirationKey]))
	if err != nil || !now.Before(expires) || secret.DeletionTimestamp != nil ||
		secret.Type != corev1.SecretTypeBootstrapToken || secret.Name != TokenPrefix+id || len(half) != TokenSecretLength {
		return "", time.Time{}, false
	}
	return id + "." + half, expires, true
}
