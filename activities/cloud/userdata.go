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
	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/provider"
)

// userDataKey is the key of the user data in a class's Secret.
const userDataKey = "userData"

// Placeholders in user data.
const (
	tokenPlaceholder       = "<<BOOTSTRAP_TOKEN>>"
	machineNamePlaceholder = "<<MACHINE_NAME>>"
)

// noUserDataProblem is the problem of a class whose Secret lacks the user data.
func noUserDataProblem(class provider.Class) *kube.Problem {
	return kube.NewClassProblem(
		v1alpha1.ReasonSecretInvalid,
		"the Secret of MachineClass %s has no key %s",
		class.Name,
		userDataKey,
	)
}

// instanceUserData returns the user data of a machine's instance: the user data of its class with the placeholders
// replaced. A Secret without the key userData is a problem that people must fix; an empty value is allowed. A token
// that does not exist or is not usable is a retryable problem, because the next attempt makes another token. A target
// cluster that does not answer in time is a retryable problem, too. The results data and token are secret.
func (p *Activities) instanceUserData(
	ctx context.Context,
	class provider.Class,
	machine kube.Ref,
	ref kube.TokenRef,
	now time.Time,
) (data []byte, token string, problem *kube.Problem, err error) {
	template, found := class.Secret[userDataKey]
	if !found {
		return nil, "", noUserDataProblem(class), nil
	}
	bounded, cancel := context.WithTimeout(ctx, kube.TokenRequestTimeout)
	defer cancel()
	token, err = p.readBootstrapToken(bounded, machine.Namespace, ref, now)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, "", kube.NewTargetTimeoutProblem(fmt.Sprintf(
			"the target cluster of namespace %s did not answer the read of bootstrap token %s/%s within %s",
			machine.Namespace, ref.Namespace, ref.Name, phrase.DurationText(kube.TokenRequestTimeout),
		)), nil
	}
	if gone, is := kube.FailureOfType(err, kube.FailureTypeTokenGone); is {
		return nil, "", &kube.Problem{
			Reason:   kube.ReasonTokenGone,
			Message:  gone.Message(),
			React:    kube.ReactionRetry,
			Failures: 1,
		}, nil
	}
	if err != nil {
		return nil, "", nil, err
	}
	return renderUserData(template, machine.Name, token), token, nil, nil
}

// readBootstrapToken reads a bootstrap token in the form that an instance presents. readBootstrapToken returns "" if
// the machine needs no token. The token is in the target cluster of the machine's namespace.
func (p *Activities) readBootstrapToken(
	ctx context.Context,
	namespace string,
	ref kube.TokenRef,
	now time.Time,
) (string, error) {
	if ref == (kube.TokenRef{}) {
		return "", nil
	}
	secret := p.FreshTokens.Take(namespace, ref)
	if secret == nil && p.TargetClient == nil {
		return "", fmt.Errorf(
			"read bootstrap token %s/%s: this worker has no access to a target cluster",
			ref.Namespace,
			ref.Name,
		)
	}
	var err error
	if secret == nil {
		client, failed := p.TargetClient(ctx, namespace)
		if failed != nil {
			return "", fmt.Errorf("read bootstrap token %s/%s: %w", ref.Namespace, ref.Name, failed)
		}
		secret, err = client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return "", kube.TokenGoneError(fmt.Sprintf("bootstrap token %s/%s does not exist any more", ref.Namespace, ref.Name))
	case err != nil:
		return "", fmt.Errorf("get secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	token, _, usable := kube.ReadToken(secret, now)
	if !usable {
		return "", kube.TokenGoneError(
			fmt.Sprintf("bootstrap token %s/%s has expired or was changed", ref.Namespace, ref.Name),
		)
	}
	return token, nil
}

// renderUserData returns the user data with the placeholders replaced, in plain and in URL-encoded form. Some formats
// of user data need the URL-encoded form; an encoded placeholder gets an encoded value. If token is empty, the token's
// placeholders stay. renderUserData does not change userData.
func renderUserData(userData []byte, machine string, token string) []byte {
	pairs := placeholderEncodings(machineNamePlaceholder, machine)
	if token != "" {
		pairs = append(pairs, placeholderEncodings(tokenPlaceholder, token)...)
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(userData)))
}

// hasPlaceholder reports whether user data has a placeholder in one of its forms.
func hasPlaceholder(userData []byte, name string) bool {
	forms := placeholderEncodings(name, "")
	for i := 0; i < len(forms); i += 2 {
		if bytes.Contains(userData, []byte(forms[i])) {
			return true
		}
	}
	return false
}

// placeholderEncodings returns the forms of a placeholder, each followed by its replacement. The hexadecimal digits of
// a URL-encoded form may be in upper or lower case.
func placeholderEncodings(name, value string) []string {
	encoded, encodedValue := url.QueryEscape(name), url.QueryEscape(value)
	small := strings.NewReplacer("%3C", "%3c", "%3E", "%3e").Replace(encoded)
	return []string{name, value, encoded, encodedValue, small, encodedValue}
}

// SingleTargetClientFunc returns a function for Provider.TargetClient that returns this client for every namespace.
func SingleTargetClientFunc(client kubernetes.Interface) func(context.Context, string) (kubernetes.Interface, error) {
	return func(context.Context, string) (kubernetes.Interface, error) { return client, nil }
}
