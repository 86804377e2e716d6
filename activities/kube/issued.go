package kube

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// freshTokenTTL is how long a bootstrap token is kept for the create call that needs it. Source: the create call
// follows within seconds unless it waits for a slot. After a long wait, one more read of the Secret does not matter.
const freshTokenTTL = time.Minute

// FreshTokens keeps the bootstrap tokens that this process has just made, so that create calls need not read them. Each
// token is taken at most once and removed after a minute. The zero FreshTokens is ready to use and safe for concurrent
// use; a nil FreshTokens keeps nothing.
type FreshTokens struct {
	mu     sync.Mutex
	tokens map[freshTokenKey]*corev1.Secret
}

// freshTokenKey contains the namespace of the token's machine, because the target clusters of two namespaces may have
// Secrets of the same name.
type freshTokenKey struct {
	namespace string
	ref       TokenRef
}

// Put keeps the Secret of a token. The namespace is the namespace of the token's machine.
func (i *FreshTokens) Put(namespace string, ref TokenRef, secret *corev1.Secret) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tokens == nil {
		i.tokens = map[freshTokenKey]*corev1.Secret{}
	}
	key := freshTokenKey{namespace, ref}
	i.tokens[key] = secret
	time.AfterFunc(freshTokenTTL, func() { i.removeToken(key, secret) })
}

// Take returns the Secret of a token and removes it. The namespace is the namespace of the token's machine. Take
// returns nil if FreshTokens does not contain the token.
func (i *FreshTokens) Take(namespace string, ref TokenRef) *corev1.Secret {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	key := freshTokenKey{namespace, ref}
	secret := i.tokens[key]
	delete(i.tokens, key)
	return secret
}

func (i *FreshTokens) removeToken(key freshTokenKey, secret *corev1.Secret) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tokens[key] == secret {
		delete(i.tokens, key)
	}
}
