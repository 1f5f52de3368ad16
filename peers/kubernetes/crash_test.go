package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func TestWrongMaps(t *testing.T) {
	// finished returns the final state of ten inputs. The first is deleted.
	finished := func() (inputs, outputs [10]*corev1.ConfigMap) {
		for i := 1; i < 10; i++ {
			value := firstValue(i)
			if i <= 3 {
				value = lastValue(i)
			}
			uid := types.UID(inputName(i))
			inputs[i] = &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: inputName(i), UID: uid, Annotations: map[string]string{handled: value}},
				Data:       map[string]string{"value": value},
			}
			outputs[i] = &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: outputName(inputName(i)), OwnerReferences: []metav1.OwnerReference{{UID: uid, Controller: new(true)}}},
				Data:       map[string]string{"result": resultOf(value)},
			}
		}
		return inputs, outputs
	}
	for what, test := range map[string]struct {
		spoil func(inputs, outputs *[10]*corev1.ConfigMap)
		wrong int
	}{
		"finished":   {func(_, _ *[10]*corev1.ConfigMap) {}, 0},
		"no output":  {func(_, outputs *[10]*corev1.ConfigMap) { outputs[5] = nil }, 1},
		"old value":  {func(inputs, _ *[10]*corev1.ConfigMap) { inputs[2].Annotations[handled] = firstValue(2) }, 1},
		"old output": {func(_, outputs *[10]*corev1.ConfigMap) { outputs[2].Data["result"] = resultOf(firstValue(2)) }, 1},
		"no owner":   {func(_, outputs *[10]*corev1.ConfigMap) { outputs[7].OwnerReferences = nil }, 1},
		"not deleted": {func(inputs, _ *[10]*corev1.ConfigMap) {
			inputs[0] = inputs[1].DeepCopy()
			inputs[0].Name = inputName(0)
		}, 1},
		"one too many":    {func(_, outputs *[10]*corev1.ConfigMap) { outputs[0] = outputs[1].DeepCopy(); outputs[0].Name = "other" }, 1},
		"nothing handled": {func(_, outputs *[10]*corev1.ConfigMap) { *outputs = [10]*corev1.ConfigMap{} }, 9},
	} {
		t.Run(what, func(t *testing.T) {
			inputs, outputs := finished()
			test.spoil(&inputs, &outputs)
			var objects []runtime.Object
			for _, m := range append(inputs[:], outputs[:]...) {
				if m != nil {
					objects = append(objects, m)
				}
			}
			wrong, err := wrongMaps(t.Context(), fake.NewClientset(objects...), "n", 10)
			if err != nil || len(wrong) != test.wrong {
				t.Errorf("wrongMaps() = %q, %v, want %d", wrong, err, test.wrong)
			}
		})
	}
}
