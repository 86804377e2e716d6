package kubecli

import (
	"context"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// UserReview has the user name after authentication by the API server, and the time of the API server.
type UserReview struct {
	User       string
	ServerTime time.Time // time of the API server, in whole seconds
}

// ReviewUser asks the API server who the user is.
func (c Clients) ReviewUser(ctx context.Context) (UserReview, error) {
	answer, err := c.UserReviews.SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return UserReview{}, fmt.Errorf("ask who the user is: %w", err)
	}
	return UserReview{answer.Status.UserInfo.Username, answer.CreationTimestamp.Time}, nil
}

// IsAllowed asks the API server whether the user may use a verb on a resource of Millwright's API group in all
// namespaces.
func (c Clients) IsAllowed(ctx context.Context, verb, resource string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupName, Verb: verb, Resource: resource},
	}}
	answer, err := c.AccessReviews.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask for the right to %s %s: %w", verb, resource, err)
	}
	return answer.Status.Allowed, nil
}

// ActorName returns the login name of the person who makes a request. If the login name is empty or is root, which
// several people may share, ActorName returns the user of the kubeconfig.
func ActorName(ctx context.Context, c Clients) string {
	login := os.Getenv("USER")
	if login != "" && login != "root" || c.UserReviews == nil {
		return login
	}
	if self, err := c.ReviewUser(ctx); err == nil {
		return self.User
	}
	return login
}
