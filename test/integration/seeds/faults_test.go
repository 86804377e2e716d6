//go:build integration

package seeds

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
	"millwright/test/integration/rig"
)

// applyFault waits until no other fault affects the same component, identity or operation. Then applyFault starts one
// fault, waits, and ends the fault.
func (a *seedRun) applyFault(ctx context.Context, s planStep) {
	part := s.FaultTarget
	switch s.Kind {
	case faultWipeTemporal:
		part = component.Temporal
	case faultCloudErrors,
		faultCloudErrorsAfterEffect,
		faultCloudLatency,
		faultCloudHangs,
		faultCloudRateLimit,
		faultCloudQuota,
		faultInstancesWithoutNode:
		part = "behaviour of the cloud"
	}
	mutex := componentLock(part)
	mutex.Lock()
	defer mutex.Unlock()
	switch s.Kind {
	case faultKillComponent:
		a.retryUntilDone(
			"kill "+s.FaultTarget,
			func(ctx context.Context) error { return testRig.Stack.KillComponent(ctx, s.FaultTarget) },
		)
		time.Sleep(s.Duration)
		a.startComponent(s.FaultTarget)
	case faultPauseComponent:
		// the component has already exited
		if testRig.Stack.SignalComponent(ctx, s.FaultTarget, syscall.SIGSTOP) != nil {
			return
		}
		time.Sleep(s.Duration)
		if testRig.Stack.SignalComponent(ctx, s.FaultTarget, syscall.SIGCONT) != nil {
			a.startComponent(s.FaultTarget)
		}
	case faultRevokeRights:
		a.revokeRights(s)
	case faultRefuseWrites:
		a.refuseWrites(s)
	case faultMachineQuota:
		a.createFullMachineQuota(s)
	case faultWrongCredentials:
		a.writeCredentials("wrong")
		time.Sleep(s.Duration)
		a.writeCredentials(rig.CanaryToken)
	case faultRestoreEtcd:
		a.saveAndRestoreEtcd(s)
	case faultWipeTemporal:
		a.retryUntilDone(
			"kill Temporal",
			func(ctx context.Context) error { return testRig.Stack.KillComponent(ctx, component.Temporal) },
		)
		files, _ := filepath.Glob(filepath.Join(testRig.Stack.Dir(), component.Temporal, "*"))
		for _, file := range files {
			_ = os.Remove(file)
		}
		a.startComponent(component.Temporal)
		a.startComponent(component.Bootstrap)
	case faultAPIUnavailable, faultAPIErrors, faultSlowWatches:
		a.disturbAPIConnection(s)
	default:
		a.disturbCloud(s)
	}
}

// startComponent starts a component. startComponent retries until it succeeds, because components that this component
// requires may be down.
func (a *seedRun) startComponent(name string) {
	begun := time.Now()
	for {
		err := testRig.Stack.StartComponent(context.WithoutCancel(a.t.Context()), name)
		if err == nil {
			return
		}
		if time.Since(begun) > 3*time.Minute {
			a.t.Errorf("start %s: %v", name, err)
			return
		}
		time.Sleep(time.Second)
	}
}

// revokeRights makes the API server deny all requests of an identity.
func (a *seedRun) revokeRights(s planStep) {
	var rights rig.Rights
	a.retryUntilDone("read the rights of "+s.FaultTarget, func(ctx context.Context) (err error) {
		rights, err = testRig.RightsOfUser(ctx, s.FaultTarget)
		return err
	})
	a.retryUntilDone("take the rights of "+s.FaultTarget, rights.Revoke)
	time.Sleep(s.Duration)
	a.retryUntilDone("give the rights back to "+s.FaultTarget, rights.Restore)
}

// refuseWrites creates an admission policy that denies all writes of the worker to one resource of the namespace, or to
// nodes.
func (a *seedRun) refuseWrites(s planStep) {
	name := a.namespace + "-" + strings.ReplaceAll(s.FaultTarget, "/", "-")
	groups := []string{v1alpha1.SchemeGroupVersion.Group}
	if s.FaultTarget == "nodes" {
		groups = []string{""}
	}
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{s.FaultTarget}},
	}}
	policies := testRig.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := testRig.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	a.retryUntilDone("make a policy", func(ctx context.Context) error {
		_, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
				MatchConditions: []admissionv1.MatchCondition{
					{Name: "worker", Expression: fmt.Sprintf("request.userInfo.username == %q", component.WorkerIdentity)},
				},
				Validations: []admissionv1.Validation{{Expression: "false", Message: "a fault of the seed"}},
			},
		}, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	})
	a.retryUntilDone("bind the policy", func(ctx context.Context) error {
		_, err := bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	})
	time.Sleep(s.Duration)
	a.retryUntilDone("end the policy", func(ctx context.Context) error {
		if err := ignoreNotFound(bindings.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
		return ignoreNotFound(policies.Delete(ctx, name, metav1.DeleteOptions{}))
	})
}

// createFullMachineQuota creates a quota that allows no more machines. The stack has no quota controller, so
// createFullMachineQuota writes the quota's status.
func (a *seedRun) createFullMachineQuota(s planStep) {
	quotas := testRig.Kube.CoreV1().ResourceQuotas(a.namespace)
	full := corev1.ResourceList{"count/machines.machine.sapcloud.io": resource.MustParse("1")}
	a.retryUntilDone("make a quota", func(ctx context.Context) error {
		quota, err := quotas.Create(
			ctx,
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: full}},
			metav1.CreateOptions{},
		)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err != nil {
			return err
		}
		quota.Status = corev1.ResourceQuotaStatus{Hard: full, Used: full}
		_, err = quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
		return err
	})
	time.Sleep(s.Duration)
	a.retryUntilDone(
		"end the quota",
		func(ctx context.Context) error {
			return ignoreNotFound(quotas.Delete(ctx, "full", metav1.DeleteOptions{}))
		},
	)
}

// ignoreAlreadyExists returns the error of a creation, or nil if the object existed already.
func ignoreAlreadyExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// disturbCloud changes the behaviour of the cloud for some time.
func (a *seedRun) disturbCloud(s planStep) {
	change := func(do func(*admin.Behaviour)) {
		a.retryUntilDone(
			"change the cloud",
			func(ctx context.Context) error { return testRig.Cloud.ChangeBehaviour(ctx, do) },
		)
	}
	operation := admin.Operation(s.FaultTarget)
	switch s.Kind {
	case faultCloudErrors, faultCloudErrorsAfterEffect:
		fault := admin.Fault{
			Operation:        operation,
			Code:             "Unavailable",
			Message:          "a fault of the seed",
			FailsAfterEffect: s.Kind == faultCloudErrorsAfterEffect,
			Lifetime:         virtual.Duration(s.Duration),
			Probability:      0.7,
			Seed:             a.plan.seed,
			Class:            a.namespace + "/small",
		}
		a.retryUntilDone(
			"add a fault of the cloud",
			func(ctx context.Context) error { return testRig.Cloud.AddFault(ctx, fault) },
		)
		time.Sleep(s.Duration)
	case faultCloudLatency:
		change(func(b *admin.Behaviour) { b.CreateLatency, b.BootLatency, b.DeleteLatency = 3e9, 2e9, 3e9 })
		time.Sleep(s.Duration)
		change(func(b *admin.Behaviour) { b.CreateLatency, b.BootLatency, b.DeleteLatency = 0, 0, 0 })
	case faultCloudHangs:
		change(func(b *admin.Behaviour) {
			b.HangPoints = map[admin.Operation]admin.HangPoint{operation: admin.HangAfterEffect}
		})
		time.Sleep(s.Duration)
		change(func(b *admin.Behaviour) { b.HangPoints = nil })
	case faultCloudRateLimit:
		limit := admin.RateLimit{TokensPerSecond: 1, Burst: 1}
		change(func(b *admin.Behaviour) {
			b.RateLimits = map[admin.Operation]admin.RateLimit{
				admin.OperationCreate: limit,
				admin.OperationDelete: limit,
				admin.OperationStatus: limit,
				admin.OperationList:   limit,
			}
		})
		time.Sleep(s.Duration)
		change(func(b *admin.Behaviour) { b.RateLimits = nil })
	case faultCloudQuota:
		change(func(b *admin.Behaviour) { b.Quotas = map[string]int{"total": 1} })
		time.Sleep(s.Duration)
		change(func(b *admin.Behaviour) { b.Quotas = nil })
	case faultInstancesWithoutNode:
		change(func(b *admin.Behaviour) { b.BootLatency = virtual.Duration(24 * time.Hour) })
		time.Sleep(s.Duration)
		change(func(b *admin.Behaviour) { b.BootLatency = 0 })
	default:
		a.t.Errorf("no such fault: %s", s.Kind)
	}
}

// writeCredentials writes the credentials into the Secret. If a load has deleted the Secret, writeCredentials does
// nothing, because this load restores the Secret with the right credentials.
func (a *seedRun) writeCredentials(token string) {
	a.retryUntilDone("write credentials", func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"stringData":{"token":%q}}`, token)
		_, err := testRig.Kube.CoreV1().
			Secrets(a.namespace).
			Patch(ctx, "small", types.MergePatchType, patch, metav1.PatchOptions{})
		return ignoreNotFound(err)
	})
}

// saveAndRestoreEtcd copies the API server's store, and restores the copy after some time. If a Machine does not exist
// after the restore, the checker ignores its instance.
func (a *seedRun) saveAndRestoreEtcd(s planStep) {
	copied := filepath.Join(a.t.TempDir(), "etcd")
	ctx := context.WithoutCancel(a.t.Context())
	a.deploymentLock.Lock() // if saveAndRestoreEtcd copied the store during a hand-over, the copy would lack the deployment
	err := testRig.SaveEtcdData(ctx, copied)
	a.deploymentLock.Unlock()
	if err != nil {
		a.t.Errorf("save the store: %v", err)
		return
	}
	time.Sleep(s.Duration)
	excusing, stop := context.WithCancel(ctx)
	var excused sync.WaitGroup
	excused.Go(func() { a.ignoreInstancesWithoutMachine(excusing) })
	defer func() { stop(); excused.Wait() }()
	if err := testRig.RestoreEtcdData(ctx, copied); err != nil {
		a.t.Errorf("restore the store: %v", err)
	}
	a.retryUntilDone("let all Nodes join again", func(ctx context.Context) error { return testRig.Cloud.ResyncNodes(ctx) })
	time.Sleep(20 * time.Second) // wait, because creations that are in progress may still complete
}

// ignoreInstancesWithoutMachine runs until ctx ends. It makes the checker ignore the instances whose Machines are
// missing after a restore.
func (a *seedRun) ignoreInstancesWithoutMachine(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		now, err := a.watcher.TakeSnapshot(ctx)
		if err != nil {
			continue
		}
		for _, i := range now.Instances {
			if now.MachineByUID(i.Tags.MachineUID) == nil {
				a.watcher.ExpectOrphanedInstance(i.Tags.MachineUID)
			}
		}
	}
}

// disturbAPIConnection makes an identity's connection to the API server faulty for some time. disturbAPIConnection
// requires a stack with proxies.
func (a *seedRun) disturbAPIConnection(s planStep) {
	p := map[string]*rig.APIProxy{component.WorkerIdentity: testRig.Proxies.Worker, component.BridgeIdentity: testRig.Proxies.Bridge}[s.FaultTarget]
	if p == nil {
		a.t.Errorf("no proxy for %q", s.FaultTarget)
		return
	}
	faults := map[string]rig.APIFaults{
		faultAPIUnavailable: {UnavailableChance: 1},
		faultAPIErrors:      {BusyChance: 0.1, ConflictChance: 0.25, LostAnswerChance: 0.1},
		faultSlowWatches:    {WatchDelay: 5 * time.Second},
	}
	p.SetFaults(faults[s.Kind])
	if s.Kind != faultAPIErrors {
		p.CutWatches(0)
	}
	time.Sleep(s.Duration)
	p.SetFaults(rig.APIFaults{})
}
