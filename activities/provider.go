package activities

import (
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
	terminatingRetry = 500 * time.Millisecond // between two looks at an instance that is being deleted
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
		return p.Cloud.CreateInstance(ctx, class, machine)
	})
}

// InitializeInstance does what the provider does once the instance exists; a provider without such a step succeeds.
func (p *Provider) InitializeInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(ctx, in, func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
		instance, err := p.Cloud.InitializeInstance(ctx, class, machine)
		if provider.CodeOf(err) == provider.Unimplemented {
			return provider.Instance{ProviderID: in.ProviderID, NodeName: in.NodeName}, nil
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
		switch instance, err := p.Cloud.InstanceStatus(ctx, class, machine); provider.CodeOf(err) {
		case provider.NotFound, provider.Unimplemented: // without a status, the accepted deletion is all there is to know
			return provider.Instance{}, nil
		case provider.OK, provider.NotInitialized:
			return provider.Instance{}, terminating(instance.ProviderID)
		default:
			return provider.Instance{}, err
		}
	})
}

// terminating makes Temporal look again soon; it is no failure.
func terminating(providerID string) error {
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("instance %s is still terminating", providerID), TypeTerminating,
		temporal.ApplicationErrorOptions{NextRetryDelay: terminatingRetry, Category: temporal.ApplicationErrorCategoryBenign})
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
	code := provider.CodeOf(err)
	var application *temporal.ApplicationError
	switch {
	case err == nil:
		return InstanceAnswer{
			ProviderID: instance.ProviderID, NodeName: instance.NodeName, LastKnownState: instance.LastKnownState,
			Uninitialized: instance.State == provider.Uninitialized,
		}, nil
	case errors.As(err, &application), ctx.Err() != nil:
		return InstanceAnswer{}, err
	case in.Known == nil || code.String() != in.Known.Reason || ReactionTo(code) == UntilSpec || ReactionTo(code) == UntilCredential:
		return InstanceAnswer{Problem: problemOf(err), LastKnownState: instance.LastKnownState}, nil
	default:
		return InstanceAnswer{}, providerError(err)
	}
}

// backOff is the failure of the first attempt after a problem was shown: the cloud was asked a moment ago.
func backOff(known Problem) error {
	return temporal.NewApplicationErrorWithOptions(known.Message, known.Reason, temporal.ApplicationErrorOptions{NextRetryDelay: known.After})
}

// problemOf turns a provider's error into what people read.
func problemOf(err error) *Problem {
	code := provider.CodeOf(err)
	problem := &Problem{Reason: code.String(), Message: "the provider gave no reason", React: ReactionTo(code)}
	var e *provider.Error
	if errors.As(err, &e) {
		problem.Message, problem.After = e.Message, e.RetryAfter
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
	for i, ref := range []*corev1.SecretReference{mc.SecretRef, mc.CredentialsSecretRef} {
		if ref == nil || (i == 1 && mc.SecretRef != nil && *ref == *mc.SecretRef) {
			continue
		}
		secret, err := p.Secrets.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return provider.Class{}, &Problem{
				Reason: v1alpha1.ReasonSecretNotFound, React: UntilCredential,
				Message: fmt.Sprintf("Secret %s/%s of MachineClass %s does not exist", ref.Namespace, ref.Name, name),
			}, nil
		case err != nil:
			return provider.Class{}, nil, fmt.Errorf("get secret %s/%s: %w", ref.Namespace, ref.Name, err)
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
