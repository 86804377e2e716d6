package cloud

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/provider"
)

// userDataKey is the key of the user data in a class's Secret.
const userDataKey = "userData"

// The placeholders in user data.
const (
	tokenPlaceholder   = "<<BOOTSTRAP_TOKEN>>"
	machinePlaceholder = "<<MACHINE_NAME>>"
)

// noUserData is the problem of a class whose Secret lacks the user data.
func noUserData(class provider.Class) *kube.Problem {
	return kube.ClassProblem(
		v1alpha1.ReasonSecretInvalid,
		"the Secret of MachineClass %s has no key %s",
		class.Name,
		userDataKey,
	)
}

// userData returns the user data of a machine's instance: that of its class with the placeholders replaced. A Secret
// without the key is a problem for people; an empty value is not. A token that does not exist or is not usable is a
// problem that may pass, because the next attempt makes another token. The result is secret, and so is the token, which
// is returned too.
func (p *Provider) userData(
	ctx context.Context,
	class provider.Class,
	machine string,
	ref kube.TokenRef,
	now time.Time,
) (data []byte, token string, problem *kube.Problem, err error) {
	template, found := class.Secret[userDataKey]
	if !found {
		return nil, "", noUserData(class), nil
	}
	token, err = p.token(ctx, ref, now)
	if gone, is := kube.Failure(err, kube.TypeTokenGone); is {
		return nil, "", &kube.Problem{
			Reason:   kube.ReasonTokenGone,
			Message:  gone.Message(),
			React:    kube.Retry,
			Failures: 1,
		}, nil
	}
	if err != nil {
		return nil, "", nil, err
	}
	return render(template, machine, token), token, nil, nil
}

// token reads a bootstrap token in the form that an instance presents; empty when the machine needs none.
func (p *Provider) token(ctx context.Context, ref kube.TokenRef, now time.Time) (string, error) {
	if ref == (kube.TokenRef{}) {
		return "", nil
	}
	secret := p.FreshTokens.Take(ref)
	if secret == nil && p.Tokens == nil {
		return "", fmt.Errorf(
			"read bootstrap token %s/%s: this worker has no access to a target cluster",
			ref.Namespace,
			ref.Name,
		)
	}
	var err error
	if secret == nil {
		secret, err = p.Tokens.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return "", kube.TokenGone(fmt.Sprintf("bootstrap token %s/%s does not exist any more", ref.Namespace, ref.Name))
	case err != nil:
		return "", fmt.Errorf("get secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	token, _, usable := kube.ReadToken(secret, now)
	if !usable {
		return "", kube.TokenGone(fmt.Sprintf("bootstrap token %s/%s has expired or was changed", ref.Namespace, ref.Name))
	}
	return token, nil
}

// render returns the user data with the placeholders replaced, in plain and in URL-encoded form, which some formats of
// user data need; an encoded placeholder gets an encoded value. Without a token, its placeholders stay. The given slice
// is not changed.
func render(userData []byte, machine string, token string) []byte {
	pairs := placeholder(machinePlaceholder, machine)
	if token != "" {
		pairs = append(pairs, placeholder(tokenPlaceholder, token)...)
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(userData)))
}

// hasPlace reports whether user data has a placeholder in one of its forms.
func hasPlace(userData []byte, name string) bool {
	forms := placeholder(name, "")
	for i := 0; i < len(forms); i += 2 {
		if bytes.Contains(userData, []byte(forms[i])) {
			return true
		}
	}
	return false
}

// placeholder returns the forms of a placeholder, each followed by its replacement. The hexadecimal digits of an
// encoding may be in upper or lower case.
func placeholder(name, value string) []string {
	encoded, encodedValue := url.QueryEscape(name), url.QueryEscape(value)
	small := strings.NewReplacer("%3C", "%3c", "%3E", "%3e").Replace(encoded)
	return []string{name, value, encoded, encodedValue, small, encodedValue}
}
