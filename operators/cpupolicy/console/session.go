/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package console

import (
	"crypto/rand"
	"crypto/subtle"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

const (
	// longestSession is how long somebody is signed in at most. Rights are checked each time, but
	// that a token was revoked shows only at the next one.
	longestSession = time.Hour
	// sessionsOfUser is how many sessions one user can have. One more ends the oldest.
	sessionsOfUser = 8
)

// session is what is known of somebody who has signed in. The token is not.
type session struct {
	user    authenticationv1.UserInfo
	id      string
	csrf    string
	begun   time.Time
	expires time.Time
	// failure is what became of the last request, until the next one.
	failure *alert
}

// owns reports whether a form was made for this session.
func (s *session) owns(csrf string) bool {
	return subtle.ConstantTimeCompare([]byte(csrf), []byte(s.csrf)) == 1
}

// sessions are in the memory of this replica, and end with it.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	byID map[string]*session
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, byID: map[string]*session{}}
}

// begin returns a session that ends when the token does, or after an hour. A token that has no end
// has the zero time.
func (s *sessions) begin(user authenticationv1.UserInfo, end time.Time) session {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := s.now()
	begins := &session{user: user, id: rand.Text(), csrf: rand.Text(), begun: begun, expires: begun.Add(longestSession)}
	if !end.IsZero() && end.Before(begins.expires) {
		begins.expires = end
	}
	var same []*session
	for id, each := range s.byID {
		if !begun.Before(each.expires) {
			delete(s.byID, id)
		} else if each.user.Username == user.Username {
			same = append(same, each)
		}
	}
	slices.SortFunc(same, func(a, b *session) int { return b.begun.Compare(a.begun) })
	for i := sessionsOfUser - 1; i < len(same); i++ {
		delete(s.byID, same[i].id)
	}
	s.byID[begins.id] = begins
	return *begins
}

// get returns a copy of a session that has not ended; false if there is none.
func (s *sessions) get(id string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, is := s.byID[id]
	if !is || !s.now().Before(found.expires) {
		delete(s.byID, id)
		return session{}, false
	}
	return *found, true
}

// setFailure keeps what became of a request. Nil means that it went well.
func (s *sessions) setFailure(id string, failure *alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, is := s.byID[id]; is {
		found.failure = failure
	}
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}
