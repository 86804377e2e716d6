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
	tokens map[TokenRef]*corev1.Secret
}

// Put keeps the Secret of a token.
func (i *FreshTokens) Put(ref TokenRef, secret *corev1.Secret) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tokens == nil {
		i.tokens = map[TokenRef]*corev1.Secret{}
	}
	i.tokens[ref] = secret
	time.AfterFunc(freshTokenTTL, func() { i.removeToken(ref, secret) })
}

// Take returns the Secret of a token and removes it. Take returns nil if FreshTokens does not contain the token.
func (i *FreshTokens) Take(ref TokenRef) *corev1.Secret {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	secret := i.tokens[ref]
	delete(i.tokens, ref)
	return secret
}

func (i *FreshTokens) removeToken(ref TokenRef, secret *corev1.Secret) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tokens[ref] == secret {
		delete(i.tokens, ref)
	}
}
