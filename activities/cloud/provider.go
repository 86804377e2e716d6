// Package cloud has the activities that call a provider: they create, look at and delete instances.
package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/provider"
)

// Provider are the steps that call a cloud. They run on the task queue of their provider, on a worker that holds the only
// credentials; a worker in another language may answer the same names. What they get are references: they read the class
// and its Secrets themselves, and nothing of a Secret leaves them.
type Provider struct {
	Cloud   provider.Provider
	Classes versioned.Interface
	Secrets kubernetes.Interface
	Tokens  kubernetes.Interface // of the target cluster, where bootstrap tokens are; nil means that there is none
	Cluster string               // value of --cluster-name

	// ExhaustedRetry bounds the back-off after ResourceExhausted; zero means DefaultExhaustedRetry.
	ExhaustedRetry time.Duration
}

// InstanceCall names a machine and its class to a provider. It holds no secret.
type InstanceCall struct {
	Machine        kube.Ref
	Class          string // MachineClass in the machine's namespace
	ProviderID     string
	NodeName       string
	LastKnownState string
	Token          kube.TokenRef // of the bootstrap token; empty when the instance needs none
	NeverTried     bool          // no create call was begun before this activity
	Known          *kube.Problem // that the workflow has shown already: backed off from, and returned only when it changes
}

// InstanceAnswer is what a provider said. Problem is set when the call failed in a way that the workflow has not shown
// yet: it shows it and calls again, or waits, as the reaction says.
type InstanceAnswer struct {
	ProviderID     string
	NodeName       string
	LastKnownState string
	Addresses      []kube.Address
	Uninitialized  bool
	Gone           bool // with InstanceStatus: the provider is sure that there is no instance
	Problem        *kube.Problem
}

// CreateInstance makes the machine's instance, or adopts the one that carries its UID. Running it twice makes one.
func (p *Provider) CreateInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, true, func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
		info := activity.GetInfo(ctx)
		machine.NeverTried = in.NeverTried && info.Attempt == 1 && time.Since(info.ScheduledTime) < kube.FirstCallWithin
		instance, err := p.Cloud.CreateInstance(ctx, class, machine)
		if err == nil && (instance.ProviderID == "" || instance.NodeName == "") {
			return instance, provider.Errorf(provider.Internal, "the provider made an instance and did not name it: provider ID %q, node %q", instance.ProviderID, instance.NodeName)
		}
		return instance, err
	})
}

// InitializeInstance does what the provider does once the instance exists; a provider without such a step succeeds.
func (p *Provider) InitializeInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, false, func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
		instance, err := p.Cloud.InitializeInstance(ctx, class, machine)
		if provider.CodeOf(err) == provider.Unimplemented {
			return provider.Instance{ProviderID: in.ProviderID, NodeName: in.NodeName, LastKnownState: in.LastKnownState}, nil
		}
		return instance, err
	})
}

// InstanceStatus asks the provider whether the machine's instance is gone. What it cannot say is no failure.
func (p *Provider) InstanceStatus(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, false, p.Cloud.InstanceStatus)
}

// DeleteInstance removes the machine's instance and returns when the provider says that it is gone. It always reaches the
// provider, also when the instance seems gone: what was made for it may not be.
func (p *Provider) DeleteInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, false, func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
		machine.NeverTried = in.NeverTried
		gone, err := p.remove(ctx, class, machine)
		if err == nil && !gone {
			err = terminating(ctx, machine.Name)
		}
		return provider.Instance{}, err
	})
}

// terminating makes Temporal run the activity again when the instance may be gone. It counts as no failure.
func terminating(ctx context.Context, machine string) error {
	wait := kube.DeletePoll(time.Since(activity.GetInfo(ctx).ScheduledTime))
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("instance of machine %s is still terminating", machine), kube.TypeTerminating,
		temporal.ApplicationErrorOptions{NextRetryDelay: wait, Category: temporal.ApplicationErrorCategoryBenign})
}

// remove asks the cloud to delete what carries a machine's UID, and whether it is gone. Its errors are the cloud's own.
func (p *Provider) remove(ctx context.Context, class provider.Class, machine provider.Machine) (gone bool, err error) {
	if err := p.Cloud.DeleteInstance(ctx, class, machine); err != nil && provider.CodeOf(err) != provider.NotFound {
		return false, err
	}
	switch _, err := p.Cloud.InstanceStatus(ctx, class, machine); provider.CodeOf(err) {
	case provider.NotFound, provider.Unimplemented: // without a status, the accepted deletion is all there is to know
		return true, nil
	case provider.OK, provider.NotInitialized, provider.OutOfRange: // one is still there, or several
		return false, nil
	default:
		return false, err
	}
}

// call reads the class and its Secrets, calls the cloud with a heartbeat, and sorts its answer: a success, a problem that
// has to be shown, or an error for Temporal to retry. An instance that boots by this call gets user data made for it.
func (p *Provider) call(ctx context.Context, in InstanceCall, boots bool, do func(context.Context, provider.Class, provider.Machine) (provider.Instance, error)) (InstanceAnswer, error) {
	info, failures := activity.GetInfo(ctx), 1
	if in.Known != nil {
		failures = in.Known.Failures + int(info.Attempt) - 1
		if info.Attempt == 1 && time.Since(info.ScheduledTime) < kube.FirstCallWithin {
			return InstanceAnswer{}, p.backOff(*in.Known)
		}
	}
	stop := kube.Beat(ctx)
	defer stop()
	class, problem, err := p.class(ctx, in.Machine.Namespace, in.Class)
	if err == nil && problem == nil && boots {
		problem, err = p.boot(ctx, &class, in)
	}
	switch {
	case err != nil:
		return InstanceAnswer{}, err
	case problem != nil && problem.React == kube.Retry && in.Known != nil && in.Known.Reason == problem.Reason:
		problem.Failures = failures
		return InstanceAnswer{}, p.backOff(*problem)
	case problem != nil:
		return InstanceAnswer{Problem: problem}, nil
	}
	instance, err := do(ctx, class.Class, provider.Machine{
		Cluster: p.Cluster, Namespace: in.Machine.Namespace, Name: in.Machine.Name, UID: in.Machine.UID,
		ProviderID: in.ProviderID, LastKnownState: in.LastKnownState,
	})
	if err == nil {
		return answerOf(instance), nil
	}
	return p.refused(ctx, in, class, instance, err, failures)
}

// refused sorts what a cloud said instead of doing what it was asked.
func (p *Provider) refused(ctx context.Context, in InstanceCall, class boundClass, instance provider.Instance, err error, failures int) (InstanceAnswer, error) {
	var application *temporal.ApplicationError
	switch {
	case errors.As(err, &application):
		return InstanceAnswer{}, err
	case ctx.Err() != nil:
		return InstanceAnswer{}, ctx.Err() // what the provider says of it may hold anything
	}
	problem := problemOf(err, class.Secret, class.token)
	problem.Failures = failures
	if in.Known == nil || problem.Reason != in.Known.Reason || problem.React == kube.UntilSpec || problem.React == kube.UntilCredential {
		return InstanceAnswer{Problem: problem, LastKnownState: instance.LastKnownState, Gone: provider.CodeOf(err) == provider.NotFound}, nil
	}
	return InstanceAnswer{}, p.backOff(*problem)
}

func answerOf(i provider.Instance) InstanceAnswer {
	return InstanceAnswer{
		ProviderID: i.ProviderID, NodeName: i.NodeName, LastKnownState: i.LastKnownState,
		Addresses:     append([]kube.Address(nil), i.Addresses...), // none is nil: nothing is known of them
		Uninitialized: i.State == provider.Uninitialized,
	}
}

// boot puts what the instance is started with into the class's Secret, in place of the template that stands there.
func (p *Provider) boot(ctx context.Context, class *boundClass, in InstanceCall) (*kube.Problem, error) {
	if !class.boots {
		return nil, nil
	}
	data, token, problem, err := p.userData(ctx, class.Class, in.Machine.Name, in.Token)
	if err != nil || problem != nil {
		return problem, err
	}
	_, half, _ := strings.Cut(token, ".") // which is as good as the whole: the other half is in the name of its Secret
	class.Secret[userDataKey] = data
	class.token = provider.Secret{"whole": []byte(token), "half": []byte(half)}
	return nil, nil
}

// backOff is the failure for a problem that is shown already: Temporal tries again later. Its type is the code's name.
func (p *Provider) backOff(known kube.Problem) error {
	return temporal.NewApplicationErrorWithOptions(known.Message, known.Reason, temporal.ApplicationErrorOptions{NextRetryDelay: kube.BackOffFor(known, p.ExhaustedRetry)})
}

// problemOf turns a provider's error into what people read: its sentence, without the cause's text, and without the values
// of the Secrets even where the provider forgot to leave them out. The larger ones come first.
func problemOf(err error, secrets ...provider.Secret) *kube.Problem {
	code := provider.CodeOf(err)
	problem := &kube.Problem{Reason: code.String(), Message: "the provider gave no reason", React: kube.ReactionTo(code)}
	var e *provider.Error
	if errors.As(err, &e) {
		text := e.Message
		for _, secret := range secrets {
			text = secret.Redact(text)
		}
		problem.Message, problem.After = kube.Brief(text), e.RetryAfter
	}
	return problem
}

// boundClass is a MachineClass with the Secrets that it names.
type boundClass struct {
	provider.Class
	boots bool            // it says what instances are started with
	token provider.Secret // the bootstrap token in there: a message may quote it without the rest
}

// class reads a MachineClass and the Secrets that it names. What is missing is a problem for people, not an error.
func (p *Provider) class(ctx context.Context, namespace, name string) (boundClass, *kube.Problem, error) {
	mc, err := p.Classes.MachineV1alpha1().MachineClasses(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return boundClass{}, kube.ClassNotFound(namespace, name), nil
	case err != nil:
		return boundClass{}, nil, fmt.Errorf("get class %s/%s: %w", namespace, name, err)
	}
	c := boundClass{
		Class: provider.Class{Namespace: namespace, Name: name, Spec: mc.ProviderSpec.Raw, Secret: provider.Secret{}},
		boots: mc.SecretRef != nil,
	}
	refs := []*corev1.SecretReference{mc.SecretRef, mc.CredentialsSecretRef} // of one key, the later value counts
	for i, ref := range refs {
		if ref == nil || (i > 0 && refs[0] != nil && *ref == *refs[0]) {
			continue
		}
		problem, err := p.merge(ctx, c.Class, *ref)
		if err != nil || problem != nil {
			return boundClass{}, problem, err
		}
	}
	return c, nil, nil
}

// merge adds the data of a Secret to that of the class.
func (p *Provider) merge(ctx context.Context, c provider.Class, ref corev1.SecretReference) (*kube.Problem, error) {
	if ref.Name == "" {
		return kube.ClassProblem(v1alpha1.ReasonClassInvalid, "MachineClass %s refers to a Secret without saying its name", c.Name), nil
	}
	where := cmp.Or(ref.Namespace, c.Namespace)
	secret, err := p.Secrets.CoreV1().Secrets(where).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return kube.ClassProblem(v1alpha1.ReasonSecretNotFound, "Secret %s/%s of MachineClass %s does not exist", where, ref.Name, c.Name), nil
	case err != nil:
		return nil, fmt.Errorf("get secret %s/%s: %w", where, ref.Name, err)
	}
	maps.Copy(c.Secret, secret.Data)
	return nil, nil
}
