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

// Activities has the activities that call a cloud. The activities run on the task queue of their provider. Only a
// worker of this provider has the credentials. A worker in another language may serve activities of the same names. The
// inputs are references to objects. The activities read the class and its Secrets, and return no data of a Secret.
type Activities struct {
	Cloud   provider.Provider
	Classes versioned.Interface
	Secrets kubernetes.Interface
	// TargetClient returns the client of the target cluster of a namespace, where the bootstrap tokens are stored; nil:
	// there is no target cluster.
	TargetClient func(ctx context.Context, namespace string) (kubernetes.Interface, error)
	Cluster      string // value of --cluster-name

	// FreshTokens has the bootstrap tokens that this process has just made. If FreshTokens is nil, each token is read
	// from the target cluster.
	FreshTokens *kube.FreshTokens

	// NamespaceCalls is the maximum number of concurrent activities for one namespace. Zero means no maximum.
	NamespaceCalls int

	classCache  classCache
	claimReader sharedClaimReader
	slots       namespaceSlots

	// NodeTemplates makes CreateInstance read the annotations of the Machine's spec.nodeTemplate for the provider.
	// NodeTemplates costs one more request per create call.
	NodeTemplates bool

	// UnaskedSecrets lets classes use Secrets of other namespaces without the consent of the Secrets' owners.
	UnaskedSecrets bool

	// ExhaustedRetry is the longest back-off after ResourceExhausted. An ExhaustedRetry of zero means
	// DefaultMaxExhaustedBackOff.
	ExhaustedRetry time.Duration
}

// InstanceCall is the input of the activities for one instance: it names a machine and its class. InstanceCall contains
// no secret.
type InstanceCall struct {
	Machine        kube.Ref
	Class          string // name of the MachineClass in the machine's namespace
	Versions       string // versions of the class and its Secrets that the decision used; empty: read them for this call
	ProviderID     string
	NodeName       string
	LastKnownState string
	Token          kube.TokenRef // reference to the bootstrap token; empty: the instance needs no token
	Tokenless      bool          // the decision has found that the user data has no placeholder for a token
	NeverTried     bool          // no create call was started before this activity
	// IntentRun is the ID of the run that recorded NeverTried. CreateInstance ignores NeverTried in any other run.
	IntentRun string
	// Known is the problem that the workflow already shows; nil: no problem. While the call fails with the Known
	// problem, Temporal retries the activity with a back-off. The activity returns a problem only if it differs from
	// Known.
	Known *kube.Problem
	// FailsWithProblem makes the activity return a problem as a failure (kube.FailureTypeProblem), so that Temporal's
	// timeline does not show a refused call as a success. A worker that ignores this field returns the problem as a result.
	FailsWithProblem bool
}

// InstanceAnswer is the answer of a provider. Problem is set if the call failed with a problem that the workflow does
// not show yet. The workflow shows the problem and then calls again or waits, depending on the reaction.
type InstanceAnswer struct {
	ProviderID     string
	NodeName       string
	LastKnownState string
	Addresses      []kube.Address
	Uninitialized  bool
	// Tokenless holds the versions of the class and its Secrets if the user data has no placeholder for a bootstrap
	// token. CreateInstance sets it.
	Tokenless string
	Gone      bool // set by InstanceStatus: the provider is sure that the instance does not exist
	// Anothers names the owner of the instance that the machine names, if the owner is another Machine. DeleteInstance
	// sets it. The instance was not deleted.
	Anothers string
	Problem  *kube.Problem
}

// HasNoInstance reports whether the answer to InstanceStatus is final and names no instance. The answer is final if
// the instance does not exist, the provider does not implement InstanceStatus, or the instance belongs to another
// Machine. After any other problem, a later answer may name an instance.
func (a InstanceAnswer) HasNoInstance() bool {
	return a.Gone ||
		a.Problem != nil &&
			slices.Contains([]string{provider.Unimplemented.String(), provider.AlreadyExists.String()}, a.Problem.Reason)
}

// CreateInstance creates the machine's instance, or adopts an instance that carries the machine's UID. Running
// CreateInstance twice creates one instance.
func (p *Activities) CreateInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.callCloud(
		ctx,
		in,
		true,
		func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
			info := activity.GetInfo(ctx)
			machine.NeverTried = in.NeverTried && in.IntentRun == info.WorkflowExecution.RunID &&
				isFirstCloudCall(info, activity.HasHeartbeatDetails(ctx))
			machine.MayRunUntil = lastCreateDeadline(ctx, info)
			var err error
			if machine.NodeAnnotations, err = p.readNodeTemplateAnnotations(ctx, in.Machine); err != nil {
				return provider.Instance{}, err
			}
			var instance provider.Instance
			_, err = p.callCloudAsOwner(ctx, in, class, &machine, func() (err error) {
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
				err = p.requireUnclaimedInstance(ctx, in, instance)
			}
			return instance, err
		},
	)
}

// readNodeTemplateAnnotations returns the annotations of a Machine's spec.nodeTemplate. readNodeTemplateAnnotations
// returns nil if the provider does not read annotations, or if the Machine is gone.
func (p *Activities) readNodeTemplateAnnotations(ctx context.Context, machine kube.Ref) (map[string]string, error) {
	if !p.NodeTemplates {
		return nil, nil
	}
	m, err := kube.ReadLive(ctx, p.Classes.MachineV1alpha1().Machines(machine.Namespace), "machine", machine)
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

// InitializeInstance runs the provider's initialisation of an existing instance. InitializeInstance succeeds for a
// provider that has no initialisation.
func (p *Activities) InitializeInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.callCloud(
		ctx,
		in,
		false,
		func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
			instance, err := p.Cloud.InitializeInstance(ctx, class, machine)
			if provider.CodeOfError(err) == provider.Unimplemented {
				return provider.Instance{ProviderID: in.ProviderID, NodeName: in.NodeName, LastKnownState: in.LastKnownState}, nil
			}
			return instance, err
		},
	)
}

// InstanceStatus asks the provider whether the machine's instance exists, and for the instance's names. An instance
// exists even if it is not initialised yet. If the provider does not implement InstanceStatus, the activity does not
// fail.
func (p *Activities) InstanceStatus(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	return p.callCloud(
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
				err = p.requireUnclaimedInstance(ctx, in, instance)
			}
			return instance, err
		},
	)
}

// DeleteInstance deletes the machine's instance and returns when the provider reports that the instance is gone.
// DeleteInstance always calls the provider, even if the instance seems gone, because other resources may have been
// created for the instance.
//
// DeleteInstance keeps an instance that is proven to belong to another Machine, and returns the owner. If the owner is
// in doubt, DeleteInstance returns a problem.
func (p *Activities) DeleteInstance(ctx context.Context, in InstanceCall) (InstanceAnswer, error) {
	var owner ownership.OwnerAnswer
	answer, err := p.callCloud(
		ctx,
		in,
		false,
		func(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
			machine.NeverTried = in.NeverTried
			// an instance that another controller created has no UID, so it is deleted by its provider ID alone
			if machine.ProviderID == "" {
				found, err := p.Cloud.InstanceStatus(ctx, class, machine)
				if err == nil && found.MachineUID == "" && p.requireUnclaimedInstance(ctx, in, found) == nil {
					machine.ProviderID = found.ProviderID
				}
			}
			gone := false
			var err error
			owner, err = p.callCloudAsOwner(ctx, in, class, &machine, func() (err error) {
				gone, err = p.deleteInstances(ctx, class, machine)
				return err
			})
			refusal, is := errors.AsType[*provider.Error](err)
			switch {
			case owner.HasOwnerKind(ownership.OwnerOther):
				return provider.Instance{}, nil
			case err == nil && !gone:
				err = instanceTerminatingError(ctx, machine.Name)
			// no instance was created, so the workflow ends the deletion instead of waiting for people
			case is && in.NeverTried:
				err = &provider.Error{Code: refusal.Code, Message: refusal.Message, Cause: err}
			}
			return provider.Instance{}, err
		},
	)
	if err == nil && owner.HasOwnerKind(ownership.OwnerOther) {
		answer.Anothers = owner.Why
	}
	return answer, err
}

// instanceTerminatingError returns a benign error: Temporal retries the activity at a time when the instance may be
// gone, and raises no alarm.
func instanceTerminatingError(ctx context.Context, machine string) error {
	info := activity.GetInfo(ctx) // ScheduledTime and StartedTime are times of the server's clock
	wait := kube.DeletePollInterval(info.StartedTime.Sub(info.ScheduledTime))
	return temporal.NewApplicationErrorWithOptions(
		fmt.Sprintf("instance of machine %s is still terminating", machine),
		kube.FailureTypeTerminating,
		temporal.ApplicationErrorOptions{NextRetryDelay: wait, Category: temporal.ApplicationErrorCategoryBenign},
	)
}

// deleteInstances asks the cloud to delete all instances with a machine's UID, and returns whether these instances are
// gone. Errors of the cloud are returned unchanged.
func (p *Activities) deleteInstances(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (gone bool, err error) {
	if err := p.Cloud.DeleteInstance(ctx, class, machine); err != nil && provider.CodeOfError(err) != provider.NotFound {
		return false, err
	}
	if machine.ProviderID == "" {
		machine.Name = "" // an instance with the machine's name but without its UID is neither deleted nor waited for
	}
	switch _, err := p.Cloud.InstanceStatus(ctx, class, machine); provider.CodeOfError(err) {
	// if the provider has no InstanceStatus, an accepted deletion counts as done
	case provider.NotFound, provider.Unimplemented:
		return true, nil
	case provider.OK, provider.NotInitialized, provider.OutOfRange: // one or more instances still exist
		return false, nil
	default:
		return false, err
	}
}

// cloudCall makes a call of an activity to the cloud.
type cloudCall func(context.Context, provider.Class, provider.Machine) (provider.Instance, error)

// callCloud occupies a slot of the machine's namespace while it makes a call to the cloud. If the workflow already
// shows a problem, the first attempt only waits for the back-off. If boots is true, the instance gets user data.
func (p *Activities) callCloud(ctx context.Context, in InstanceCall, boots bool, do cloudCall) (InstanceAnswer, error) {
	if in.Known != nil && isFirstCloudCall(activity.GetInfo(ctx), activity.HasHeartbeatDetails(ctx)) {
		return InstanceAnswer{}, p.backOffError(*in.Known)
	}
	release, err := p.occupySlot(ctx, in.Machine.Namespace)
	if err != nil {
		return InstanceAnswer{}, err
	}
	defer release()
	answer, err := p.callCloudInSlot(ctx, in, boots, do)
	if err == nil && answer.Problem != nil && in.FailsWithProblem {
		return InstanceAnswer{}, kube.ProblemError(*answer.Problem, answer)
	}
	return answer, err
}

// callCloudInSlot reads the class and its Secrets, and sends heartbeats while it calls the cloud. callCloudInSlot turns
// the cloud's answer into a success, a problem to show, or an error for Temporal to retry.
func (p *Activities) callCloudInSlot(
	ctx context.Context,
	in InstanceCall,
	boots bool,
	do cloudCall,
) (InstanceAnswer, error) {
	info, failures := activity.GetInfo(ctx), 1
	if in.Known != nil {
		failures = in.Known.Failures + int(info.Attempt) - 1
	}
	detail := attemptDetail{Said: cloudCalledDetail}
	if boots {
		detail.CreatesUntil = info.StartedTime.Add(info.StartToCloseTimeout)
	}
	stop := kube.StartHeartbeats(ctx, detail)
	defer stop()
	class, problem, err := p.classOfCall(ctx, in)
	if err == nil && problem == nil && boots {
		problem, err = p.addUserData(ctx, &class, in)
	}
	switch {
	case err != nil:
		return InstanceAnswer{}, err
	case problem != nil && problem.React == kube.ReactionRetry && in.Known != nil && in.Known.Reason == problem.Reason:
		problem.Failures = failures
		return InstanceAnswer{}, p.backOffError(*problem)
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
			Addresses:     append([]kube.Address(nil), instance.Addresses...), // nil means that the addresses are unknown
			Uninitialized: instance.State == provider.Uninitialized,
			Tokenless:     class.tokenlessVersions,
		}, nil
	}
	if stop(); ctx.Err() == nil {
		activity.RecordHeartbeat(ctx, attemptDetail{Said: cloudCalledDetail})
	}
	return p.handleCloudError(ctx, in, class, instance, err, failures)
}

// handleCloudError turns an error of the cloud into a problem to show or an error to retry.
func (p *Activities) handleCloudError(
	ctx context.Context,
	in InstanceCall,
	class classWithSecrets,
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
	if err := p.checkClassUnchanged(ctx, class); err != nil {
		return InstanceAnswer{}, err
	}
	problem := problemFromError(err, class.Secret, class.token)
	problem.Failures = failures
	waits := problem.React == kube.ReactionUntilSpecChange || problem.React == kube.ReactionUntilCredentialChange
	if waits && problem.After > 0 { // a provider that sets RetryAfter does not wait for people
		problem.React, waits = kube.ReactionRetry, false
	}
	// the next call needs the new LastKnownState
	moved := instance.LastKnownState != "" && instance.LastKnownState != in.LastKnownState
	if in.Known == nil || problem.Reason != in.Known.Reason || waits || moved {
		return InstanceAnswer{
			Problem:        problem,
			LastKnownState: instance.LastKnownState,
			Gone:           provider.CodeOfError(err) == provider.NotFound,
		}, nil
	}
	return InstanceAnswer{}, p.backOffError(*problem)
}

// addUserData replaces the user data template in the class's Secret by the user data of the instance.
func (p *Activities) addUserData(ctx context.Context, class *classWithSecrets, in InstanceCall) (*kube.Problem, error) {
	if !class.hasUserData {
		return nil, nil
	}
	if template, found := class.Secret[userDataKey]; found && !hasPlaceholder(template, tokenPlaceholder) {
		class.tokenlessVersions = class.versions
	} else if found && in.Tokenless {
		return nil, kube.TokenNeededError(class.Name)
	}
	now := kube.NewServerClock(ctx).Now()
	data, token, problem, err := p.instanceUserData(ctx, class.Class, in.Machine, in.Token, now)
	if err != nil || problem != nil {
		return problem, err
	}
	// only this half is secret; the other half is in the name of the token's Secret
	_, half, _ := strings.Cut(token, ".")
	class.Secret[userDataKey] = data
	class.token = provider.Secret{"whole": []byte(token), "half": []byte(half)}
	return nil, nil
}

// backOffError returns the activity failure for a problem that the workflow already shows. Temporal retries the
// activity later. The type of the failure is the name of the provider's code.
func (p *Activities) backOffError(known kube.Problem) error {
	return temporal.NewApplicationErrorWithOptions(known.Message, known.Reason,
		temporal.ApplicationErrorOptions{NextRetryDelay: kube.BackOffAfterProblem(known, p.ExhaustedRetry)})
}

// problemFromError turns a provider's error into a problem. The text of the problem is the error's message without its
// cause. The values of the Secrets are removed, even if the provider forgot to remove them. The caller must pass longer
// secrets first.
func problemFromError(err error, secrets ...provider.Secret) *kube.Problem {
	code := provider.CodeOfError(err)
	problem := &kube.Problem{
		Reason:  code.String(),
		Message: "the provider gave no reason",
		React:   kube.ReactionToCode(code),
	}
	if e, ok := errors.AsType[*provider.Error](err); ok {
		text := e.Message
		for _, secret := range secrets {
			text = secret.Redact(text)
		}
		problem.Message, problem.After = kube.ShortenMessage(text), e.RetryAfter
	}
	return problem
}
