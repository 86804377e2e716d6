package machine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
)

// TokenRequest requests the bootstrap token of one attempt to create an instance.
type TokenRequest struct {
	Read    kube.ReadInput
	Attempt string    // unique ID of the attempt
	Expires time.Time // deadline for the node to join
}

// IssueToken creates the bootstrap token of an attempt, and returns the reference of its Secret. A repeated call for
// the same attempt returns the same token.
func (a *Activities) IssueToken(ctx context.Context, in TokenRequest) (kube.TokenRef, error) {
	m, _, err := a.Kube.ReadMachine(ctx, in.Read)
	switch {
	case err != nil:
		return kube.TokenRef{}, err
	case m == nil:
		return kube.TokenRef{}, kube.ObjectGoneError(in.Read.Ref)
	}
	return a.issueToken(ctx, m, in.Attempt, in.Expires, in.Read.TimeToRecord(ctx))
}

// maxTokenNameAttempts is the largest number of names that are tried. 36^6 token IDs exist, so ten collisions in a row
// are a bug.
const maxTokenNameAttempts = 10

// issueToken creates a bootstrap token for one attempt to create a machine's instance, valid until expires. A repeated
// call for the same attempt finds the same Secret, and extends it if needed. A token serves one machine and one
// attempt, and an expired token is never reused. The tokens of earlier attempts stay, because an interrupted attempt
// may have created an instance that boots with its token. RevokeTokens deletes all tokens of the machine. If the target
// cluster does not answer within kube.TokenRequestTimeout, issueToken returns a retryable error.
func (a *Activities) issueToken(
	ctx context.Context,
	m *v1alpha1.Machine,
	attempt string,
	expires, now time.Time,
) (kube.TokenRef, error) {
	target := a.Kube.Cluster.TargetClient(m.Namespace)
	if target == nil {
		return kube.TokenRef{}, nil
	}
	// the Secret stores whole seconds, so the expiration must have no fraction to compare equal in a repeated call
	expires = expires.UTC().Truncate(time.Second)
	if !now.Before(expires) {
		return kube.TokenRef{}, kube.TokenGoneError(
			fmt.Sprintf(
				"a bootstrap token of machine %s/%s would have expired at %s",
				m.Namespace,
				m.Name,
				phrase.ClockText(expires, now),
			),
		)
	}
	ctx, cancel := context.WithTimeout(ctx, kube.TokenRequestTimeout)
	defer cancel()
	secrets := target.CoreV1().Secrets(metav1.NamespaceSystem)
	for n := range maxTokenNameAttempts {
		wanted := a.newTokenSecret(m, attempt, n, expires)
		ref := kube.TokenRef{Namespace: wanted.Namespace, Name: wanted.Name}
		made, err := secrets.Create(ctx, wanted, metav1.CreateOptions{})
		if err == nil {
			a.Kube.FreshTokens.Put(m.Namespace, ref, made)
			return ref, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			machine := kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
			return kube.TokenRef{}, kube.ClassifySecretError(ctx, machine, "create secret "+wanted.Name, err)
		}
		kept, err := reuseTokenIfUsable(ctx, secrets, wanted, expires, now)
		if err != nil {
			return kube.TokenRef{}, err
		}
		if kept {
			return ref, nil
		}
	}
	return kube.TokenRef{}, fmt.Errorf(
		"all %d names for a bootstrap token of machine %s/%s are taken",
		maxTokenNameAttempts,
		m.Namespace,
		m.Name,
	)
}

// newTokenSecret returns the Secret of a new token. The number n is how many names of this attempt are already in use.
func (a *Activities) newTokenSecret(m *v1alpha1.Machine, attempt string, n int, expires time.Time) *corev1.Secret {
	id := deriveTokenID(m.UID, attempt, n)
	secret := &corev1.Secret{Type: corev1.SecretTypeBootstrapToken}
	secret.Namespace, secret.Name = metav1.NamespaceSystem, kube.TokenSecretNamePrefix+id
	secret.Labels = map[string]string{v1alpha1.LabelMachineUID: string(m.UID)}
	secret.Annotations = map[string]string{v1alpha1.AnnotationAttempt: attempt}
	secret.Data = map[string][]byte{
		kube.TokenIDKey: []byte(id),
		// 80 random bits, five for each letter
		kube.TokenSecretKey:      []byte(strings.ToLower(rand.Text()[:kube.TokenSecretLength])),
		kube.TokenExpirationKey:  []byte(expires.Format(time.RFC3339)),
		kube.TokenAuthKey:        []byte("true"),
		kube.TokenSigningKey:     []byte("true"),
		kube.TokenDescriptionKey: fmt.Appendf(nil, "Bootstrap token of machine %s/%s.", m.Namespace, m.Name),
	}
	if a.Kube.TokenGroups != "" {
		secret.Data[kube.TokenGroupsKey] = []byte(a.Kube.TokenGroups)
	}
	return secret
}

// Format of the public half of a bootstrap token. Source: Kubernetes, "Authenticating with Bootstrap Tokens".
const (
	tokenAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	tokenIDLength = 6
)

// deriveTokenID returns the public half of a token. The ID is derived from the machine's UID and the attempt, so that
// the same attempt finds its token again.
func deriveTokenID(uid types.UID, attempt string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", uid, attempt, n))
	rest := binary.BigEndian.Uint64(sum[:])
	id := make([]byte, tokenIDLength)
	for i := range id {
		id[i] = tokenAlphabet[rest%uint64(len(tokenAlphabet))]
		rest /= uint64(len(tokenAlphabet))
	}
	return string(id)
}

// reuseTokenIfUsable reports whether the existing Secret with the wanted name is a usable token of the same machine and
// attempt. A reused token is extended until expires.
func reuseTokenIfUsable(
	ctx context.Context,
	secrets corev1client.SecretInterface,
	wanted *corev1.Secret,
	expires, now time.Time,
) (bool, error) {
	found, err := secrets.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("get secret %s: %w", wanted.Name, err)
	}
	_, until, usable := kube.ReadToken(found, now)
	switch {
	case !usable,
		found.Labels[v1alpha1.LabelMachineUID] != wanted.Labels[v1alpha1.LabelMachineUID],
		found.Annotations[v1alpha1.AnnotationAttempt] != wanted.Annotations[v1alpha1.AnnotationAttempt]:
		return false, nil
	case !until.Before(expires):
		return true, nil
	}
	data := map[string]any{kube.TokenExpirationKey: wanted.Data[kube.TokenExpirationKey]}
	if _, err = kube.PatchObject(ctx, secrets, found, map[string]any{"data": data}); err != nil {
		return false, kube.ErrorWithoutMessage("extend secret "+wanted.Name, err)
	}
	return true, nil
}

// RevokeTokens deletes all bootstrap tokens of a machine that has joined or is being deleted. Tokens of other machines
// stay, and so do other objects with the machine's label. The activity is idempotent.
func (a *Activities) RevokeTokens(ctx context.Context, machine kube.Ref) error {
	target := a.Kube.Cluster.TargetClient(machine.Namespace)
	if target == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, kube.TokenRequestTimeout)
	defer cancel()
	secrets := target.CoreV1().Secrets(metav1.NamespaceSystem)
	tokens := metav1.ListOptions{
		LabelSelector: labels.Set{v1alpha1.LabelMachineUID: machine.UID}.String(),
		FieldSelector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeBootstrapToken)).String(),
	}
	if err := secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, tokens); err != nil {
		return kube.ClassifyTargetError(ctx, fmt.Errorf("delete bootstrap tokens of machine %s: %w", machine.Key(), err))
	}
	return nil
}
