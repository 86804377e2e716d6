// Package cloud has the activities that call a provider: they create, initialise, check and delete instances, and find
// orphans.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/api/generated/clientset/versioned"
	"millwright/decide/ownership"
	"millwright/provider"
)

// Provider has the activities that call a cloud. They run on the task queue of their provider, on a worker that has the
// only credentials. A worker in another language may serve the same names. The inputs are references: the activities
// read the class and its Secrets themselves, and return nothing of a Secret.
type Provider struct {
	Cloud   provider.Provider
	Classes versioned.Interface
	Secrets kubernetes.Interface
	Tokens  kubernetes.Interface // of the target cluster, which holds the bootstrap tokens; nil: there is none
	Cluster string               // value of --cluster-name

	// FreshTokens has the bootstrap tokens that this process has just made; nil: they are read.
	FreshTokens *kube.FreshTokens

	classes classReads
	claims  claims

	// NodeTemplates makes CreateInstance read the annotations of the Machine's spec.nodeTemplate for the provider: one
	// request more.
	NodeTemplates bool

	// UnaskedSecrets lets classes use Secrets of other namespaces without the consent of their owners.
	UnaskedSecrets bool

	// ExhaustedRetry is the longest back-off after ResourceExhausted; zero means DefaultExhaustedRetry.
	ExhaustedRetry time.Duration
}

// InstanceCall names a machine and its class to a provider. It holds no secret.
type InstanceCall struct {
	Machine        kube.Ref
	Class          string // name of the MachineClass in the machine's namespace
	Versions       string // of the class and its Secrets, as the decision saw them; empty: they are read for this call
	ProviderID     string
	NodeName       string
	LastKnownState string
	Token          kube.TokenRef // of the bootstrap token; empty when the instance needs none
	Tokenless      bool          // the decision knows that the user data has no place for a token
	NeverTried     bool          // no create call was begun before this activity
	// ID of the run that recorded NeverTried; CreateInstance believes NeverTried in this run alone
	IntentRun string
	// the problem that the workflow shows already; nil: none. A call backs off because of it, and returns only another
	// problem
	Known *kube.Problem
}

// InstanceAnswer is the answer of a provider. Problem is set when the call failed in a way that the workflow does not
// show yet: it shows the problem and calls again, or waits, depending on the reaction.
type InstanceAnswer struct {
	ProviderID     string
	NodeName       string
	LastKnownState string
	Addresses      []kube.Address
	Uninitialized  bool
	// with CreateInstance: versions of the class, if its user data has no place for a bootstrap token
	Tokenless string
	Gone      bool // with InstanceStatus: the provider is sure that there is no instance
	// with DeleteInstance: whose the instance is that the machine names, if it is another Machine's; it was not deleted
	Anothers string
	Problem  *kube.Problem
}

// Nameless reports whether the answer to InstanceStatus is final and has no name of an instance: there is no instance,
// the provider cannot say, or the instance with that name is another Machine's. After all other problems, a later
// answer may have a name.
func (a InstanceAnswer) Nameless() bool {
	return a.Gone ||
		a.Problem != nil &&
			slices.Contains([]string{provider.Unimplemented.String(), provider.AlreadyExists.String()}, a.Problem.Reason)
}

// CreateInstance creates the machine's instance, or adopts the one that carries its UID. Running it twice creates one.
func (p *Provider) CreateInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(
		ctx,
		in,
		true,
		func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
			info := activity.GetInfo(ctx)
			machine.NeverTried = in.NeverTried && in.IntentRun == info.WorkflowExecution.RunID &&
				isFirst(info, activity.HasHeartbeatDetails(ctx))
			machine.MayRunUntil = lastCreation(ctx, info)
			var err error
			if machine.NodeAnnotations, err = p.nodeAnnotations(ctx, in.Machine); err != nil {
				return provider.Instance{}, err
			}
			var instance provider.Instance
			_, err = p.asOwner(ctx, in, class, &machine, func() (err error) {
				instance, err = p.Cloud.CreateInstance(ctx, class, machine)
				return err
			})
			if err == nil && instance.ProviderID == "" {
				return instance, provider.Errorf(
					provider.Internal,
					"the provider created an instance without a provider ID: node %q",
					instance.NodeName,
				)
			}
			if err == nil {
				err = p.unclaimed(ctx, in, instance)
			}
			return instance, err
		},
	)
}

// nodeAnnotations returns the annotations of a Machine's spec.nodeTemplate; none if the provider does not read them, or
// if the Machine is gone.
func (p *Provider) nodeAnnotations(ctx context.Context, machine kube.Ref) (map[string]string, error) {
	if !p.NodeTemplates {
		return nil, nil
	}
	m, err := kube.Live(ctx, p.Classes.MachineV1alpha1().Machines(machine.Namespace), "machine", machine)
	switch {
	case err != nil:
		return nil, &provider.Error{
			Code:    provider.Unavailable,
			Message: "the API server did not return the Machine, whose node annotations the provider needs: " + err.Error(),
			Cause:   err,
		}
	case m == nil:
		return nil, nil
	}
	return m.Spec.NodeTemplateSpec.Annotations, nil
}

// InitializeInstance does the provider's step after the instance exists. A provider without such a step succeeds.
func (p *Provider) InitializeInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(
		ctx,
		in,
		false,
		func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
			instance, err := p.Cloud.InitializeInstance(ctx, class, machine)
			if provider.CodeOf(err) == provider.Unimplemented {
				return provider.Instance{ProviderID: in.ProviderID, NodeName: in.NodeName, LastKnownState: in.LastKnownState}, nil
			}
			return instance, err
		},
	)
}

// InstanceStatus asks the provider for the machine's instance: whether it is gone, and its names. An instance that
// waits to be initialised exists. A provider that cannot tell is no failure.
func (p *Provider) InstanceStatus(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.call(
		ctx,
		in,
		false,
		func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
			instance, err := p.Cloud.InstanceStatus(ctx, class, machine)
			if waits, is := errors.AsType[*provider.Error](err); is && waits.Code == provider.NotInitialized &&
				waits.Instance != nil {
				instance, err = *waits.Instance, nil
			}
			if err == nil {
				err = p.unclaimed(ctx, in, instance)
			}
			return instance, err
		},
	)
}

// DeleteInstance deletes the machine's instance and returns when the provider says that it is gone. It always calls the
// provider, also when the instance seems gone, because other resources may have been created for it.
//
// An instance that is proven to be another Machine's stays, and the answer says whose it is. One in doubt is a problem.
func (p *Provider) DeleteInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	var owner ownership.Answer
	answer, err := p.call(
		ctx,
		in,
		false,
		func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
			machine.NeverTried = in.NeverTried
			if machine.ProviderID == "" { // an instance of another controller is deleted by its ID alone
				found, err := p.Cloud.InstanceStatus(ctx, class, machine)
				if err == nil && found.MachineUID == "" && p.unclaimed(ctx, in, found) == nil {
					machine.ProviderID = found.ProviderID
				}
			}
			gone := false
			var err error
			owner, err = p.asOwner(ctx, in, class, &machine, func() (err error) {
				gone, err = p.remove(ctx, class, machine)
				return err
			})
			refusal, is := errors.AsType[*provider.Error](err)
			switch {
			case owner.Is(ownership.Anothers):
				return provider.Instance{}, nil
			case err == nil && !gone:
				err = terminating(ctx, machine.Name)
			case is && in.NeverTried: // nothing was created: the workflow ends the deletion where it would wait for people
				err = &provider.Error{Code: refusal.Code, Message: refusal.Message, Cause: err}
			}
			return provider.Instance{}, err
		},
	)
	if err == nil && owner.Is(ownership.Anothers) {
		answer.Anothers = owner.Why
	}
	return answer, err
}

// terminating returns an error with which Temporal runs the activity again when the instance may be gone. It raises no
// alarm.
func terminating(ctx context.Context, machine string) error {
	info := activity.GetInfo(ctx) // both of its times are the server's
	wait := kube.DeletePoll(info.StartedTime.Sub(info.ScheduledTime))
	return temporal.NewApplicationErrorWithOptions(
		fmt.Sprintf("instance of machine %s is still terminating", machine),
		kube.TypeTerminating,
		temporal.ApplicationErrorOptions{NextRetryDelay: wait, Category: temporal.ApplicationErrorCategoryBenign},
	)
}

// remove asks the cloud to delete all instances with a machine's UID, and returns whether they are gone. Its errors are
// the cloud's own.
func (p *Provider) remove(ctx context.Context, class provider.Class, machine provider.Machine) (gone bool, err error) {
	if err := p.Cloud.DeleteInstance(ctx, class, machine); err != nil && provider.CodeOf(err) != provider.NotFound {
		return false, err
	}
	if machine.ProviderID == "" {
		machine.Name = "" // an instance that has only the name stays, and is not waited for
	}
	switch _, err := p.Cloud.InstanceStatus(ctx, class, machine); provider.CodeOf(err) {
	case provider.NotFound, provider.Unimplemented: // without a status, an accepted deletion has to be enough
		return true, nil
	case provider.OK, provider.NotInitialized, provider.OutOfRange: // one or several still exist
		return false, nil
	default:
		return false, err
	}
}

// call reads the class and its Secrets, calls the cloud with a heartbeat, and turns its answer into a success, a
// problem to show, or an error for Temporal to retry. If boots is set, the instance gets user data.
func (p *Provider) call(
	ctx context.Context,
	in InstanceCall,
	boots bool,
	do func(context.Context, provider.Class, provider.Machine) (provider.Instance, error),
) (InstanceAnswer, error) {
	info, failures := activity.GetInfo(ctx), 1
	if in.Known != nil {
		failures = in.Known.Failures + int(info.Attempt) - 1
		if isFirst(info, activity.HasHeartbeatDetails(ctx)) {
			return InstanceAnswer{}, p.backOff(*in.Known)
		}
	}
	detail := attempt{Said: called}
	if boots {
		detail.CreatesUntil = info.StartedTime.Add(info.StartToCloseTimeout)
	}
	stop := kube.Beat(ctx, detail)
	defer stop()
	class, problem, err := p.class(ctx, in)
	if err == nil && problem == nil && boots {
		problem, err = p.addUserData(ctx, &class, in)
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
	activity.RecordHeartbeat(ctx, detail)
	instance, err := do(ctx, class.Class, provider.Machine{
		Cluster: p.Cluster, Namespace: in.Machine.Namespace, Name: in.Machine.Name, UID: in.Machine.UID,
		ProviderID: in.ProviderID, LastKnownState: in.LastKnownState,
	})
	if err == nil {
		return InstanceAnswer{
			ProviderID: instance.ProviderID, NodeName: instance.NodeName, LastKnownState: instance.LastKnownState,
			Addresses:     append([]kube.Address(nil), instance.Addresses...), // nil for none: they are not known
			Uninitialized: instance.State == provider.Uninitialized,
			Tokenless:     class.tokenless,
		}, nil
	}
	if stop(); ctx.Err() == nil {
		activity.RecordHeartbeat(ctx, attempt{Said: called})
	}
	return p.refused(ctx, in, class, instance, err, failures)
}

// refused turns an error of the cloud into a problem to show or an error to retry.
func (p *Provider) refused(
	ctx context.Context,
	in InstanceCall,
	class boundClass,
	instance provider.Instance,
	err error,
	failures int,
) (InstanceAnswer, error) {
	var application *temporal.ApplicationError
	switch {
	case errors.As(err, &application):
		return InstanceAnswer{}, err
	case ctx.Err() != nil:
		return InstanceAnswer{}, ctx.Err() // the provider's error for a cancelled call may be anything
	}
	if err := p.upToDate(ctx, class); err != nil {
		return InstanceAnswer{}, err
	}
	problem := problemOf(err, class.Secret, class.token)
	problem.Failures = failures
	waits := problem.React == kube.UntilSpec || problem.React == kube.UntilCredential
	if waits && problem.After > 0 { // a provider that says when to ask again does not wait for people
		problem.React, waits = kube.Retry, false
	}
	moved := instance.LastKnownState != "" && instance.LastKnownState != in.LastKnownState // the next call needs it
	if in.Known == nil || problem.Reason != in.Known.Reason || waits || moved {
		return InstanceAnswer{
			Problem:        problem,
			LastKnownState: instance.LastKnownState,
			Gone:           provider.CodeOf(err) == provider.NotFound,
		}, nil
	}
	return InstanceAnswer{}, p.backOff(*problem)
}

// addUserData replaces the template in the class's Secret by the user data of the instance.
func (p *Provider) addUserData(ctx context.Context, class *boundClass, in InstanceCall) (*kube.Problem, error) {
	if !class.boots {
		return nil, nil
	}
	if template, found := class.Secret[userDataKey]; found && !hasPlace(template, tokenPlaceholder) {
		class.tokenless = class.versions
	} else if found && in.Tokenless {
		return nil, kube.TokenNeeded(class.Name)
	}
	data, token, problem, err := p.userData(ctx, class.Class, in.Machine.Name, in.Token, kube.ServerClock(ctx).Now())
	if err != nil || problem != nil {
		return problem, err
	}
	_, half, _ := strings.Cut(token, ".") // as secret as the whole: the other half is in the name of the token's Secret
	class.Secret[userDataKey] = data
	class.token = provider.Secret{"whole": []byte(token), "half": []byte(half)}
	return nil, nil
}

// backOff is the failure for a problem that is shown already; Temporal retries it later. Its type is the name of the
// code.
func (p *Provider) backOff(known kube.Problem) error {
	return temporal.NewApplicationErrorWithOptions(known.Message, known.Reason,
		temporal.ApplicationErrorOptions{NextRetryDelay: kube.BackOffFor(known, p.ExhaustedRetry)})
}

// problemOf turns a provider's error into text for people: its message without the cause, and without the values of the
// Secrets, even if the provider forgot to remove them. Pass the longer secrets first.
func problemOf(err error, secrets ...provider.Secret) *kube.Problem {
	code := provider.CodeOf(err)
	problem := &kube.Problem{Reason: code.String(), Message: "the provider gave no reason", React: kube.ReactionTo(code)}
	if e, ok := errors.AsType[*provider.Error](err); ok {
		text := e.Message
		for _, secret := range secrets {
			text = secret.Redact(text)
		}
		problem.Message, problem.After = kube.Brief(text), e.RetryAfter
	}
	return problem
}
