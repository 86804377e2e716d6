//go:build integration

package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
)

// Rights are all ClusterRoleBindings of one user.
type Rights struct {
	client   rbacclient.ClusterRoleBindingInterface
	bindings []rbacv1.ClusterRoleBinding
}

// RightsOfUser returns the current rights of a user. RightsOfUser returns an error if the user has no rights.
func (r *Rig) RightsOfUser(ctx context.Context, user string) (Rights, error) {
	rights := Rights{client: r.Kube.RbacV1().ClusterRoleBindings()}
	all, err := rights.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return rights, fmt.Errorf("list the bindings of %s: %w", user, err)
	}
	for _, binding := range all.Items {
		if slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == user }) {
			binding.ResourceVersion, binding.UID = "", ""
			rights.bindings = append(rights.bindings, binding)
		}
	}
	if len(rights.bindings) == 0 {
		return rights, fmt.Errorf("user %s has no ClusterRoleBinding", user)
	}
	return rights, nil
}

// Revoke deletes the bindings. The API server then denies every request of the user. Revoke is idempotent.
func (r Rights) Revoke(ctx context.Context) (err error) {
	for _, binding := range r.bindings {
		failed := r.client.Delete(ctx, binding.Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(failed) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// Restore creates the bindings again. Restore is idempotent.
func (r Rights) Restore(ctx context.Context) (err error) {
	for _, binding := range r.bindings {
		_, failed := r.client.Create(ctx, &binding, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(failed) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
