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

// fault does one fault and takes it back. It waits until no other fault holds the same part.
func (a *arena) fault(ctx context.Context, s planStep) {
	part := s.On
	switch s.What {
	case faultWipe:
		part = component.Temporal
	case faultErrors, faultLate, faultLatency, faultHang, faultRate, faultFull, faultNoBoot:
		part = "behaviour of the cloud"
	}
	mutex := hold(part)
	mutex.Lock()
	defer mutex.Unlock()
	switch s.What {
	case faultKill:
		a.persist("kill "+s.On, func(ctx context.Context) error { return r.Stack.Kill(ctx, s.On) })
		time.Sleep(s.For)
		a.start(s.On)
	case faultPause:
		if r.Stack.Signal(ctx, s.On, syscall.SIGSTOP) != nil { // it has ended by itself
			return
		}
		time.Sleep(s.For)
		if r.Stack.Signal(ctx, s.On, syscall.SIGCONT) != nil {
			a.start(s.On)
		}
	case faultRole:
		a.takeRole(s)
	case faultPolicy:
		a.refuse(s)
	case faultQuota:
		a.exhaust(s)
	case faultCredentials:
		a.writeToken("wrong")
		time.Sleep(s.For)
		a.writeToken(rig.Canary)
	case faultRestore:
		a.restore(s)
	case faultWipe:
		a.persist("kill Temporal", func(ctx context.Context) error { return r.Stack.Kill(ctx, component.Temporal) })
		files, _ := filepath.Glob(filepath.Join(r.Stack.Dir(), component.Temporal, "*"))
		for _, file := range files {
			_ = os.Remove(file)
		}
		a.start(component.Temporal)
		a.start(component.Bootstrap)
	case faultAway, faultStorm, faultSlow:
		a.disturbAPI(s)
	default:
		a.disturbCloud(s)
	}
}

// start starts a component as often as it takes: others that it needs may be away.
func (a *arena) start(name string) {
	begun := time.Now()
	for {
		err := r.Stack.Start(context.WithoutCancel(a.t.Context()), name)
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

// takeRole makes the API server refuse all that an identity asks.
func (a *arena) takeRole(s planStep) {
	var rights rig.Rights
	a.persist("read the rights of "+s.On, func(ctx context.Context) (err error) {
		rights, err = r.RightsOf(ctx, s.On)
		return err
	})
	a.persist("take the rights of "+s.On, rights.Revoke)
	time.Sleep(s.For)
	a.persist("give the rights back to "+s.On, rights.Restore)
}

// refuse makes a policy of the API server refuse each write of the worker to one resource of the namespace, or to
// nodes.
func (a *arena) refuse(s planStep) {
	name := a.namespace + "-" + strings.ReplaceAll(s.On, "/", "-")
	groups := []string{v1alpha1.SchemeGroupVersion.Group}
	if s.On == "nodes" {
		groups = []string{""}
	}
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{s.On}},
	}}
	policies := r.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := r.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	a.persist("make a policy", func(ctx context.Context) error {
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
		return made(err)
	})
	a.persist("bind the policy", func(ctx context.Context) error {
		_, err := bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}, metav1.CreateOptions{})
		return made(err)
	})
	time.Sleep(s.For)
	a.persist("end the policy", func(ctx context.Context) error {
		if err := known(bindings.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
		return known(policies.Delete(ctx, name, metav1.DeleteOptions{}))
	})
}

// exhaust uses up a quota of machines. The stack has no controller of quotas, so the test writes its status.
func (a *arena) exhaust(s planStep) {
	quotas := r.Kube.CoreV1().ResourceQuotas(a.namespace)
	full := corev1.ResourceList{"count/machines.machine.sapcloud.io": resource.MustParse("1")}
	a.persist("make a quota", func(ctx context.Context) error {
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
	time.Sleep(s.For)
	a.persist(
		"end the quota",
		func(ctx context.Context) error { return known(quotas.Delete(ctx, "full", metav1.DeleteOptions{})) },
	)
}

// made returns the error of a creation, or nil if the object existed already.
func made(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// disturbCloud changes how the cloud behaves, for a time.
func (a *arena) disturbCloud(s planStep) {
	change := func(do func(*admin.Behaviour)) {
		a.persist("change the cloud", func(ctx context.Context) error { return r.Cloud.Change(ctx, do) })
	}
	operation := admin.Operation(s.On)
	switch s.What {
	case faultErrors, faultLate:
		fault := admin.Fault{
			Operation: operation, Code: "Unavailable", Message: "a fault of the seed", After: s.What == faultLate,
			For: virtual.Duration(s.For), Probability: 0.7, Seed: a.plan.seed, Class: a.namespace + "/small",
		}
		a.persist("add a fault of the cloud", func(ctx context.Context) error { return r.Cloud.AddFault(ctx, fault) })
		time.Sleep(s.For)
	case faultLatency:
		change(func(b *admin.Behaviour) { b.CreateLatency, b.BootLatency, b.DeleteLatency = 3e9, 2e9, 3e9 })
		time.Sleep(s.For)
		change(func(b *admin.Behaviour) { b.CreateLatency, b.BootLatency, b.DeleteLatency = 0, 0, 0 })
	case faultHang:
		change(func(b *admin.Behaviour) { b.Hangs = map[admin.Operation]admin.HangPoint{operation: admin.AfterEffect} })
		time.Sleep(s.For)
		change(func(b *admin.Behaviour) { b.Hangs = nil })
	case faultRate:
		limit := admin.RateLimit{PerSecond: 1, Burst: 1}
		change(func(b *admin.Behaviour) {
			b.RateLimits = map[admin.Operation]admin.RateLimit{
				admin.Create: limit,
				admin.Delete: limit,
				admin.Status: limit,
				admin.List:   limit,
			}
		})
		time.Sleep(s.For)
		change(func(b *admin.Behaviour) { b.RateLimits = nil })
	case faultFull:
		change(func(b *admin.Behaviour) { b.Quotas = map[string]int{"total": 1} })
		time.Sleep(s.For)
		change(func(b *admin.Behaviour) { b.Quotas = nil })
	case faultNoBoot:
		change(func(b *admin.Behaviour) { b.BootLatency = virtual.Duration(24 * time.Hour) })
		time.Sleep(s.For)
		change(func(b *admin.Behaviour) { b.BootLatency = 0 })
	default:
		a.t.Errorf("no such fault: %s", s.What)
	}
}

// writeToken writes the credentials into the Secret. A Secret that is absent, because of a load, is left alone: whoever
// restores it writes the right ones.
func (a *arena) writeToken(token string) {
	a.persist("write credentials", func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"stringData":{"token":%q}}`, token)
		_, err := r.Kube.CoreV1().Secrets(a.namespace).Patch(ctx, "small", types.MergePatchType, patch, metav1.PatchOptions{})
		return known(err)
	})
}

// restore takes a copy of the API server's store and puts it back after a while. It excuses the instances whose Machine
// does not exist any more then.
func (a *arena) restore(s planStep) {
	copied := filepath.Join(a.t.TempDir(), "etcd")
	ctx := context.WithoutCancel(a.t.Context())
	a.changing.Lock() // in the middle of a hand-over there is no deployment, and none would come back
	err := r.SaveStore(ctx, copied)
	a.changing.Unlock()
	if err != nil {
		a.t.Errorf("save the store: %v", err)
		return
	}
	time.Sleep(s.For)
	excusing, stop := context.WithCancel(ctx)
	var excused sync.WaitGroup
	excused.Go(func() { a.excuseOrphans(excusing) })
	defer func() { stop(); excused.Wait() }()
	if err := r.RestoreStore(ctx, copied); err != nil {
		a.t.Errorf("restore the store: %v", err)
	}
	a.persist("let all Nodes join again", func(ctx context.Context) error { return r.Cloud.Rejoin(ctx) })
	time.Sleep(20 * time.Second) // creations in progress may still end
}

// excuseOrphans takes note, until ctx ends, of the instances whose Machines a restore took away.
func (a *arena) excuseOrphans(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		now, err := a.watcher.Snapshot(ctx)
		if err != nil {
			continue
		}
		for _, i := range now.Instances {
			if now.Machine(i.Tags.MachineUID) == nil {
				a.watcher.Excuse(i.Tags.MachineUID)
			}
		}
	}
}

// disturbAPI disturbs the way of an identity to the API server, for a time. The stack has to be behind proxies.
func (a *arena) disturbAPI(s planStep) {
	p := map[string]*rig.APIProxy{component.WorkerIdentity: r.Proxies.Worker, component.BridgeIdentity: r.Proxies.Bridge}[s.On]
	if p == nil {
		a.t.Errorf("no proxy for %q", s.On)
		return
	}
	faults := map[string]rig.APIFaults{
		faultAway:  {Unavailable: 1},
		faultStorm: {Busy: 0.1, Conflict: 0.25, Lost: 0.1},
		faultSlow:  {WatchDelay: 5 * time.Second},
	}
	p.Set(faults[s.What])
	if s.What != faultStorm {
		p.CutWatches(0)
	}
	time.Sleep(s.For)
	p.Set(rig.APIFaults{})
}
