package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/store"
)

// KindLabel is the label with the kind of a ConfigMap's content.
const KindLabel = "faas-infer.dev/learned"

// The values of KindLabel.
const (
	kindProfile    = "profile"
	kindCorrection = "correction"
	kindHistory    = "idle-times"
	kindPlans      = "plans"
	kindYardstick  = "yardstick"
)

// The keys in a ConfigMap: the profile's key or the function's name, and the value.
const (
	keyOf    = "of"
	keyValue = "value"
)

// MaxSaves is how many corrections and histories the leader writes in a minute: one write of a
// ConfigMap a second, however many functions are busy.
const MaxSaves = 60

// historyPatience is how long the API server may take for one write.
const historyPatience = 10 * time.Second

// HistoryStore keeps profiles, plans for cutting models, corrections and idle times in ConfigMaps. It is safe for
// concurrent use.
type HistoryStore struct {
	client    kubernetes.Interface
	namespace string
	lister    listers.ConfigMapNamespaceLister
	leading   func() bool
	informers informers.SharedInformerFactory
}

// OpenHistoryStore reads the ConfigMaps of a namespace and watches them until ctx ends.
// leading reports whether this replica leads; nil means always. A replica that does not
// lead writes profiles, plans and yardsticks only.
func OpenHistoryStore(ctx context.Context, client kubernetes.Interface, namespace string, leading func() bool) (*HistoryStore, error) {
	if leading == nil {
		leading = func() bool { return true }
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = KindLabel }))
	// The informer would retry for ever without an error.
	if _, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: KindLabel, Limit: 1}); err != nil {
		return nil, fmt.Errorf("profiles and corrections could not be read: %w", err)
	}
	configMaps := factory.Core().V1().ConfigMaps()
	s := &HistoryStore{client: client, namespace: namespace, lister: configMaps.Lister().ConfigMaps(namespace), leading: leading, informers: factory}
	// Informer registers the informer with the factory, which starts it.
	synced := configMaps.Informer().HasSynced
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if !synced() {
		return nil, fmt.Errorf("profiles and corrections could not be read from the ConfigMaps of namespace %s: %w", namespace, context.Cause(ctx))
	}
	return s, nil
}

// Close waits for the informer to end. End the context of OpenHistoryStore first.
func (s *HistoryStore) Close() { s.informers.Shutdown() }

// Profile returns the profile under key; store.ErrAbsent if there is none.
func (s *HistoryStore) Profile(key string) (*profiler.Profile, error) {
	var p profiler.Profile
	if err := s.read(kindProfile, key, &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// PutProfile stores a profile under a key, which must identify model, engine and machine.
func (s *HistoryStore) PutProfile(key string, p *profiler.Profile) error {
	if key == "" {
		return errors.New("a profile needs a key")
	}
	return s.write(kindProfile, key, p)
}

// ProfilesOf lists the profiles of a model, by its hash, of all engines and machines. It leaves
// out damaged ones.
func (s *HistoryStore) ProfilesOf(hash string) (all []*profiler.Profile, err error) {
	kept, err := s.lister.List(labels.SelectorFromSet(labels.Set{KindLabel: kindProfile}))
	if err != nil {
		return nil, fmt.Errorf("list the profiles: %w", err)
	}
	for _, found := range kept {
		var p profiler.Profile
		if strings.HasPrefix(found.Data[keyOf], hash+" ") && s.read(kindProfile, found.Data[keyOf], &p) == nil {
			all = append(all, &p)
		}
	}
	return all, nil
}

// Correction returns the correction of a function's predicted times; store.ErrAbsent if
// there is none.
func (s *HistoryStore) Correction(function string) (correction.State, error) {
	var state correction.State
	err := s.read(kindCorrection, function, &state)
	return state, err
}

// PutCorrections stores corrections by functions' full names, if this replica leads.
func (s *HistoryStore) PutCorrections(states map[string]correction.State) error {
	return putAll(s, kindCorrection, states)
}

// CorrectionNames lists the names under which corrections are stored.
func (s *HistoryStore) CorrectionNames() (names []string, err error) {
	all, err := s.lister.List(labels.SelectorFromSet(labels.Set{KindLabel: kindCorrection}))
	if err != nil {
		return nil, fmt.Errorf("list the corrections: %w", err)
	}
	for _, found := range all {
		names = append(names, found.Data[keyOf])
	}
	return names, nil
}

// DeleteCorrection deletes a function's correction, if there is one.
func (s *HistoryStore) DeleteCorrection(function string) error {
	return s.delete(kindCorrection, function)
}

// History returns a function's history of idle times, in the form of the cold-start
// policy; store.ErrAbsent if there is none.
func (s *HistoryStore) History(function string) ([]byte, error) {
	var history []byte
	err := s.read(kindHistory, function, &history)
	return history, err
}

// PutHistories stores histories by functions' full names, if this replica leads.
func (s *HistoryStore) PutHistories(histories map[string][]byte) error {
	return putAll(s, kindHistory, histories)
}

// DeleteHistory deletes a function's history, if there is one.
func (s *HistoryStore) DeleteHistory(function string) error { return s.delete(kindHistory, function) }

// Plans returns the plans for cutting a model under a key; store.ErrAbsent if there are none.
func (s *HistoryStore) Plans(key string) (plans []byte, err error) {
	err = s.read(kindPlans, key, &plans)
	return plans, err
}

// PutPlans stores plans under a key, which must identify model, limits, engine and machine.
func (s *HistoryStore) PutPlans(key string, plans []byte) error {
	return s.write(kindPlans, key, plans)
}

// KeepPlans deletes the plans that were first stored before a time, except those of the keys.
func (s *HistoryStore) KeepPlans(keys []string, before time.Time) error {
	all, err := s.lister.List(labels.SelectorFromSet(labels.Set{KindLabel: kindPlans}))
	for _, found := range all {
		if of := found.Data[keyOf]; !slices.Contains(keys, of) && found.CreationTimestamp.Time.Before(before) {
			err = errors.Join(err, s.delete(kindPlans, of))
		}
	}
	return err
}

// Yardstick returns the [profiler.Profile.Yardstick] of a type of nodes, 0 if it is not known.
func (s *HistoryStore) Yardstick(kind string) float64 {
	var took float64
	if s.read(kindYardstick, kind, &took) != nil || !(took > 0) {
		return 0
	}
	return took
}

// PutYardstick stores the yardstick of a type of nodes, in µs, unless the stored one is less or the
// same within a few percent: a reading is too long while the machine is busy, and never too short.
func (s *HistoryStore) PutYardstick(kind string, took float64) error {
	if known := s.Yardstick(kind); known > 0 && (took > known || profiler.Paces(known, took) == 1) {
		return nil
	}
	return s.write(kindYardstick, kind, took)
}

// putAll writes one value after another, to spare the API server.
func putAll[T any](s *HistoryStore, kind string, values map[string]T) error {
	if !s.leading() {
		return nil
	}
	var failed error
	for _, of := range slices.Sorted(maps.Keys(values)) {
		failed = errors.Join(failed, s.write(kind, of, values[of]))
	}
	return failed
}

func (s *HistoryStore) read(kind, of string, value any) error {
	found, err := s.lister.Get(name(kind, of))
	if apierrors.IsNotFound(err) || err == nil && found.Data[keyOf] != of {
		return fmt.Errorf("%s of %s: %w", kind, of, store.ErrAbsent)
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", kind, of, err)
	}
	if err := json.Unmarshal(found.BinaryData[keyValue], value); err != nil {
		return fmt.Errorf("%s of %s: ConfigMap %s/%s has been damaged; delete it: %w", kind, of, s.namespace, found.Name, err)
	}
	return nil
}

func (s *HistoryStore) write(kind, of string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", kind, of, err)
	}
	if len(text) > corev1.MaxSecretSize*3/4 {
		return fmt.Errorf("%s of %s has %d bytes, too many for a ConfigMap", kind, of, len(text))
	}
	ctx, cancel := context.WithTimeout(context.Background(), historyPatience)
	defer cancel()
	object := applycorev1.ConfigMap(name(kind, of), s.namespace).
		WithLabels(map[string]string{KindLabel: kind, v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}).
		WithData(map[string]string{keyOf: of}).WithBinaryData(map[string][]byte{keyValue: text})
	if _, err := s.client.CoreV1().ConfigMaps(s.namespace).Apply(ctx, object, metav1.ApplyOptions{FieldManager: v1alpha1.ManagedBy, Force: true}); err != nil {
		return fmt.Errorf("%s of %s was not stored: %w", kind, of, err)
	}
	return nil
}

func (s *HistoryStore) delete(kind, of string) error {
	found, err := s.lister.Get(name(kind, of))
	if err != nil {
		return nil // There is none.
	}
	ctx, cancel := context.WithTimeout(context.Background(), historyPatience)
	defer cancel()
	err = s.client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, found.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("%s of %s was not deleted: %w", kind, of, err)
	}
	return nil
}

// name returns the ConfigMap's name. It ends in the function's name, or in a hash if of is
// no function or not valid in a name.
func name(kind, of string) string {
	prefix := "faas-infer-" + kind + "-"
	if kind != kindProfile && kind != kindYardstick && len(prefix)+len(of) < 253 && !strings.ContainsAny(of, "/ ") {
		return prefix + of
	}
	sum := sha256.Sum256([]byte(of))
	return prefix + hex.EncodeToString(sum[:16])
}
