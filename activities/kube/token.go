package kube

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TokenRef names the Secret of a bootstrap token in the target cluster. TokenRef holds no secret data. A zero TokenRef
// means that the machine needs no token.
type TokenRef struct {
	Namespace string
	Name      string
}

// ClassesWithoutToken records the classes whose user data has no placeholder for a bootstrap token, one version per
// class. Only the provider's worker reads user data. The worker's answer to a create call reports whether the user data
// of the class has a placeholder. The instances of all other classes get a token. The zero ClassesWithoutToken is ready
// to use and safe for concurrent use.
type ClassesWithoutToken struct {
	mu      sync.Mutex
	classes map[string]string // versions of the class and its Secrets, by namespace/name of the class
}

// maxClassesWithoutToken is the maximum number of recorded classes. Source: 1000 records need about a tenth of a MiB,
// and no fleet uses so many classes.
const maxClassesWithoutToken = 1000

// Add records that the user data of a class with these versions has no placeholder for a token. If
// maxClassesWithoutToken classes are already recorded, Add first removes all records, because most of the classes
// probably no longer exist. The instances of an existing class get a token until the class is recorded again.
func (t *ClassesWithoutToken) Add(namespace, class, versions string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.classes == nil || len(t.classes) >= maxClassesWithoutToken {
		t.classes = map[string]string{}
	}
	t.classes[namespace+"/"+class] = versions
}

// Contains reports whether the user data of a class with these versions has no placeholder for a token. Empty versions
// are never recorded.
func (t *ClassesWithoutToken) Contains(namespace, class, versions string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return versions != "" && t.classes[namespace+"/"+class] == versions
}

// Parts of a bootstrap token's Secret. Source: Kubernetes, "Authenticating with Bootstrap Tokens".
const (
	TokenSecretNamePrefix = "bootstrap-token-" // prefix of the token ID in the name of the Secret
	TokenSecretLength     = 16

	TokenIDKey          = "token-id"
	TokenSecretKey      = "token-secret"
	TokenExpirationKey  = "expiration"
	TokenGroupsKey      = "auth-extra-groups"
	TokenDescriptionKey = "description"
	TokenAuthKey        = "usage-bootstrap-authentication"
	TokenSigningKey     = "usage-bootstrap-signing"
)

// ReadToken returns the token in a Secret, in the form that an instance presents, and its expiration. A token is not
// usable if it has expired, has no expiration or is being deleted, or if the Secret is not a bootstrap token.
func ReadToken(secret *corev1.Secret, now time.Time) (token string, expires time.Time, usable bool) {
	id, half := string(secret.Data[TokenIDKey]), string(secret.Data[TokenSecretKey])
	expires, err := time.Parse(time.RFC3339, string(secret.Data[TokenExpirationKey]))
	if err != nil || !now.Before(expires) || secret.DeletionTimestamp != nil ||
		secret.Type != corev1.SecretTypeBootstrapToken || secret.Name != TokenSecretNamePrefix+id || len(half) != TokenSecretLength {
		return "", time.Time{}, false
	}
	return id + "." + half, expires, true
}
