package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
	Cluster string // value of --cluster-name
}

// Times of the provider activities.
const (
	exhaustedRetry   = 3 * time.Minute        // after ResourceExhausted: capacity does not come back in seconds
	terminatingRetry = 500 * time.Millisecond // between two looks at an instance that is being deleted, and that much more each time,
	terminatingMost  = 15 * time.Second       // up to this: each look is two calls of the cloud, and a thousand machines may look at once
	firstCallWithin  = 5 * time.Second        // past this, an attempt 1 may be one that an operator has reset
	heartbeatEvery   = 3 * time.Second        // a third of the heartbeat timeout in workflows/policies.go
)

// InstanceCall names a machine and its class to a provider. It holds no secret.
type InstanceCall struct {
	Machine        Ref
	Class          string // MachineClass in the machine's namespace
	ProviderID     string
	NodeName       string
	LastKnownState string
	NeverTried     bool     // no create call was begun before this activity
	Known          *Problem // that the workflow has shown already: backed off from, and returned only when it changes
}

// InstanceAnswer is what a provider said. Problem is set when the call failed in a way that the workflow has not shown
// yet: it shows it and calls again, or waits, as the reaction says.
type InstanceAnswer struct {
	ProviderID     string
	NodeName       string
	LastKnownState string
	Uninitialized  bool
	Problem        *Problem
}

// CreateInstance makes the machine's instance, or adopts the one that carries its UID. Running it twice makes one.
func (p *Provider) CreateInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
		info := activity.GetInfo(ctx)
		machine.NeverTried = in.NeverTried && info.Attempt == 1 && time.Since(info.ScheduledTime) < firstCallWithin
		instance, err := p.Cloud.CreateInstance(ctx, class, machine)
		if err == nil && (instance.ProviderID == "" || instance.NodeName == "") {
			return instance, provider.Errorf(provider.Internal, "the provider made an instance and did not name it: provider ID %q, node %q", instance.ProviderID, instance.NodeName)
		}
		return instance, err
	})
}

// InitializeInstance does what the provider does once the instance exists; a provider without such a step succeeds.
func (p *Provider) InitializeInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
		instance, err := p.Cloud.InitializeInstance(ctx, class, machine)
		if provider.CodeOf(err) == provider.Unimplemented {
			return provider.Instance{ProviderID: in.ProviderID, NodeName: in.NodeName, LastKnownState: in.LastKnownState}, nil
		}
		return instance, err
	})
}

// DeleteInstance removes the machine's instance and returns when the provider says that it is gone. It always reaches the
// provider, also when the instance seems gone: what was made for it may not be.
func (p *Provider) DeleteInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
		machine.NeverTried = in.NeverTried
		if err := p.Cloud.DeleteInstance(ctx, class, machine); err != nil && provider.CodeOf(err) != provider.NotFound {
			return provider.Instance{}, err
		}
		switch _, err := p.Cloud.InstanceStatus(ctx, class, machine); provider.CodeOf(err) {
		case provider.NotFound, provider.Unimplemented: // without a status, the accepted deletion is all there is to know
			return provider.Instance{}, nil
		case provider.OK, provider.NotInitialized:
			return provider.Instance{}, terminating(machine.Name, activity.GetInfo(ctx).Attempt)
		default:
			return provider.Instance{}, err
		}
	})
}

// terminating makes Temporal look again soon; it is no failure.
func terminating(machine string, attempt int32) error {
	after := min(terminatingRetry*time.Duration(attempt), terminatingMost)
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("instance of machine %s is still terminating", machine), TypeTerminating,
		temporal.ApplicationErrorOptions{NextRetryDelay: after, Category: temporal.ApplicationErrorCategoryBenign})
}

// call reads the class and its Secrets, calls the cloud with a heartbeat, and sorts its answer: a success, a problem that
// has to be shown, or an error for Temporal to retry.
func (p *Provider) call(ctx context.Context, in InstanceCall, do func(context.Context, provider.Class, provider.Machine) (provider.Instance, error)) (InstanceAnswer, error) {
	if in.Known != nil && activity.GetInfo(ctx).Attempt == 1 {
		return InstanceAnswer{}, backOff(*in.Known)
	}
	class, problem, err := p.class(ctx, in.Machine.Namespace, in.Class)
	if err != nil {
		return InstanceAnswer{}, err
	}
	if problem != nil {
		return InstanceAnswer{Problem: problem}, nil
	}
	machine := provider.Machine{
		Cluster: p.Cluster, Namespace: in.Machine.Namespace, Name: in.Machine.Name, UID: in.Machine.UID,
		ProviderID: in.ProviderID, LastKnownState: in.LastKnownState,
	}
	stop := beat(ctx)
	instance, err := do(ctx, class, machine)
	stop()
	var application *temporal.ApplicationError
	switch {
	case err == nil:
		return InstanceAnswer{
			ProviderID: instance.ProviderID, NodeName: instance.NodeName, LastKnownState: instance.LastKnownState,
			Uninitialized: instance.State == provider.Uninitialized,
		}, nil
	case errors.As(err, &application):
		return InstanceAnswer{}, err
	case ctx.Err() != nil:
		return InstanceAnswer{}, ctx.Err() // what the provider says of it may hold anything
	}
	problem = problemOf(err, class.Secret)
	if in.Known == nil || problem.Reason != in.Known.Reason || problem.React == UntilSpec || problem.React == UntilCredential {
		return InstanceAnswer{Problem: problem, LastKnownState: instance.LastKnownState}, nil
	}
	return InstanceAnswer{}, backOff(*problem)
}

// backOff is the failure for a problem that is shown already: Temporal tries again later. Its type is the code's name.
func backOff(known Problem) error {
	return temporal.NewApplicationErrorWithOptions(known.Message, known.Reason, temporal.ApplicationErrorOptions{NextRetryDelay: known.After})
}

// problemOf turns a provider's error into what people read: its sentence, without the cause's text, and without the values
// of the Secret even where the provider forgot to leave them out.
func problemOf(err error, secret provider.Secret) *Problem {
	code := provider.CodeOf(err)
	problem := &Problem{Reason: code.String(), Message: "the provider gave no reason", React: ReactionTo(code)}
	var e *provider.Error
	if errors.As(err, &e) {
		problem.Message, problem.After = brief(secret.Redact(e.Message)), e.RetryAfter
	}
	if problem.After == 0 && problem.React == RetryLong {
		problem.After = exhaustedRetry
	}
	return problem
}

// class reads a MachineClass and the Secrets that it names. What is missing is a problem for people, not an error.
func (p *Provider) class(ctx context.Context, namespace, name string) (provider.Class, *Problem, error) {
	mc, err := p.Classes.MachineV1alpha1().MachineClasses(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return provider.Class{}, &Problem{
			Reason: v1alpha1.ReasonClassNotFound, React: UntilCredential,
			Message: fmt.Sprintf("MachineClass %s does not exist in namespace %s", name, namespace),
		}, nil
	case err != nil:
		return provider.Class{}, nil, fmt.Errorf("get class %s/%s: %w", namespace, name, err)
	}
	class := provider.Class{Namespace: namespace, Name: name, Spec: mc.ProviderSpec.Raw, Secret: provider.Secret{}}
	refs := []*corev1.SecretReference{mc.SecretRef, mc.CredentialsSecretRef} // of one key, the later value counts
	for i, ref := range refs {
		if ref == nil || (i > 0 && refs[0] != nil && *ref == *refs[0]) {
			continue
		}
		if ref.Name == "" {
			return provider.Class{}, &Problem{
				Reason: v1alpha1.ReasonClassInvalid, React: UntilCredential,
				Message: fmt.Sprintf("MachineClass %s refers to a Secret without saying its name", name),
			}, nil
		}
		where := cmp.Or(ref.Namespace, namespace)
		secret, err := p.Secrets.CoreV1().Secrets(where).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return provider.Class{}, &Problem{
				Reason: v1alpha1.ReasonSecretNotFound, React: UntilCredential,
				Message: fmt.Sprintf("Secret %s/%s of MachineClass %s does not exist", where, ref.Name, name),
			}, nil
		case err != nil:
			return provider.Class{}, nil, fmt.Errorf("get secret %s/%s: %w", where, ref.Name, err)
		}
		maps.Copy(class.Secret, secret.Data)
	}
	return class, nil, nil
}

// beat sends heartbeats until stop is called, so that a call that takes long can be cancelled and a dead worker is noticed.
func beat(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(heartbeatEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	return func() { close(done) }
}
