#!/bin/sh
# A program in another language that only prints its progress. The wrapper reads it:
#
#   rota submit -- rota-trainer run \
#       --progress-regex 'epoch (?P<epoch>[0-9]+)/(?P<epochs>[0-9]+) loss (?P<loss>[0-9.]+)' \
#       -- sh examples/progress_lines.sh 10 1
#
# Arguments: how many epochs, and how many seconds each takes. It goes on after EPOCHS_DONE epochs.
epochs=${1:-10}
seconds=${2:-1}
epoch=${EPOCHS_DONE:-0}
epoch=${epoch%.*}
while [ "$epoch" -lt "$epochs" ]; do
    sleep "$seconds"
    epoch=$((epoch + 1))
    echo "epoch $epoch/$epochs loss 0.$((1000 / epoch))"
done
