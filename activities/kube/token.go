package kube

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TokenRef names the Secret of a bootstrap token in the target cluster. It holds no secret data. The zero value means
// that the machine needs no token.
type TokenRef struct {
	Namespace string
	Name      string
}

// ClassesWithoutToken knows the classes whose user data has no place for a bootstrap token, at one version each. Only the
// provider's worker reads user data; its answer to a create call reports such a class. The instances of all other
// classes get a token. The zero value is ready. It is safe for concurrent use.
type ClassesWithoutToken struct {
	mu      sync.Mutex
	classes map[string]string // by namespace/name: the versions of the class and its Secrets
}

// mostTokenless is the largest number of classes that are known at a time. Source: a tenth of a MiB, and more classes
// than any fleet has in use.
const mostTokenless = 1000

// Learn records that the user data of a class with these versions has no place for a token. If mostTokenless classes
// are known, most of them are gone by then, and it forgets them all: those that still exist get a token until they are
// learned again.
func (t *ClassesWithoutToken) Learn(namespace, class, versions string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.classes == nil || len(t.classes) >= mostTokenless {
		t.classes = map[string]string{}
	}
	t.classes[namespace+"/"+class] = versions
}

// Knows reports whether the user data of a class with these versions has no place for a token. Empty versions are not
// known.
func (t *ClassesWithoutToken) Knows(namespace, class, versions string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return versions != "" && t.classes[namespace+"/"+class] == versions
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

// ReadToken returns the token in a Secret, in the form that an instance presents, and when it expires. A token is not
// usable when it has expired, never expires, or is being deleted, or the Secret is no bootstrap token.
func ReadToken(secret *corev1.Secret, now time.Time) (token string, expires time.Time, usable bool) {
	id, half := string(secret.Data[TokenIDKey]), string(secret.Data[TokenSecretKey])
	expires, err := time.Parse(time.RFC3339, string(secret.Data[TokenExpirationKey]))
	if err != nil || !now.Before(expires) || secret.DeletionTimestamp != nil ||
		secret.Type != corev1.SecretTypeBootstrapToken || secret.Name != TokenPrefix+id || len(half) != TokenSecretLength {
		return "", time.Time{}, false
	}
	return id + "." + half, expires, true
}
