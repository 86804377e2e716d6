package kube

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// issuedFor is how long a bootstrap token is kept for the call of the cloud that needs it. Source: that call follows
// within seconds unless it waits for a slot; then one read of the Secret does not matter.
const issuedFor = time.Minute

// FreshTokens keeps the bootstrap tokens that this process has just made, so that the call of the cloud need not read them.
// Each is taken at most once and forgotten after a minute. The zero value is ready; a nil one keeps nothing. It is safe
// for concurrent use.
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
	time.AfterFunc(issuedFor, func() { i.forget(ref, secret) })
}

// Take returns the Secret of a token and forgets it; nil if it is not here.
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

func (i *FreshTokens) forget(ref TokenRef, secret *corev1.Secret) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tokens[ref] == secret {
		delete(i.tokens, ref)
	}
}
