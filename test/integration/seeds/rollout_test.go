//go:build integration

package seeds

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// handOverDeployment deletes a deployment with --cascade=orphan and applies the same deployment again. No other load
// changes the deployment during the hand-over.
func (a *seedRun) handOverDeployment(p *rig.Pool) {
	a.deploymentLock.Lock()
	defer a.deploymentLock.Unlock()
	deployments := testRig.MachineClient.MachineV1alpha1().MachineDeployments(a.namespace)
	var former *v1alpha1.MachineDeployment
	a.retryUntilDone("delete "+p.Name+" and leave its sets", func(ctx context.Context) (err error) {
		if former == nil {
			if former, err = deployments.Get(ctx, p.Name, metav1.GetOptions{}); err != nil {
				former = nil
				return err
			}
		}
		err = deployments.Delete(ctx, p.Name, metav1.DeleteOptions{
			PropagationPolicy: new(metav1.DeletePropagationOrphan),
			Preconditions:     metav1.NewUIDPreconditions(string(former.UID)),
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("deployment %s is being deleted", p.Name)
	})
	if former == nil { // the namespace is being deleted
		return
	}
	a.retryUntilDone("apply "+p.Name+" again", func(ctx context.Context) error {
		_, err := deployments.Create(ctx, &v1alpha1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: former.Labels}, Spec: former.Spec,
		}, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	})
}

// stageAndApproveRollouts creates a policy under which each rollout of a pool waits at half of its machines.
// stageAndApproveRollouts approves each waiting rollout after some time, until the seed ends.
func (a *seedRun) stageAndApproveRollouts(p *rig.Pool, wait time.Duration) {
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: v1alpha1.RolloutPolicySpec{
		Targets: []v1alpha1.RolloutPolicyTarget{{Name: p.Name}},
		Steps:   []v1alpha1.RolloutStep{{Replicas: intstr.FromString("50%"), Approve: true}},
	}}
	a.retryUntilDone("make a policy", func(ctx context.Context) error {
		_, err := testRig.MachineClient.MachineV1alpha1().
			RolloutPolicies(a.namespace).
			Create(ctx, policy, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	})
	ctx, deployments := a.t.Context(), testRig.MachineClient.MachineV1alpha1().MachineDeployments(a.namespace)
	go func() {
		for ctx.Err() == nil {
			time.Sleep(time.Second)
			d, err := deployments.Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil || d.Status.Rollout == nil {
				continue
			}
			now := d.Status.Rollout
			if int(now.Step) >= len(now.Steps) || now.ReachedAt == nil || time.Since(now.ReachedAt.Time) < wait {
				continue
			}
			approval := fmt.Appendf(
				nil,
				`{"metadata":{"annotations":{%q:"%d/%d chaos"}}}`,
				v1alpha1.AnnotationRolloutApprove,
				now.Revision,
				now.Step+1,
			)
			// if the patch fails, the next attempt is a second later
			_, _ = deployments.Patch(ctx, p.Name, types.MergePatchType, approval, metav1.PatchOptions{})
		}
	}()
}
