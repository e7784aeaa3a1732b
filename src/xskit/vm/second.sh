#!/bin/sh
# The guest's first process once it stands on this machine's root: runs the command and tells how it ended.
base=/run/xskit-vm
mkdir="$base/busybox mkdir"
$mkdir -p $base/tools $base/bin
$base/busybox --install -s $base/tools
export PATH=$base/tools

port() {
  for candidate in /sys/class/virtio-ports/*; do
    if [ "$(cat "$candidate/name" 2>/dev/null)" = "xskit.$1" ]; then echo "/dev/${candidate##*/}"; fi
  done
}

mkdir -p /dev/pts /dev/shm /run/netns
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t bpf bpf /sys/fs/bpf
ln -sf /proc/self/fd /dev/fd
for number in 0 1 2; do
  name=stdin; [ $number = 1 ] && name=stdout; [ $number = 2 ] && name=stderr
  ln -sf /proc/self/fd/$number /dev/$name
done
hostname xskit-guest

cat >$base/bin/xskit-vm <<EOF
#!$base/busybox sh
# Asks the host side of this guest: nic unplug N, nic plug N, nic down N, nic up N.
exec 3<>$(port ask) || exit 1
echo "\$*" >&3
read -r word rest <&3
[ "\$word" = ok ] || { echo "xskit-vm: \$rest" >&2; exit 1; }
[ -z "\$rest" ] || echo "\$rest"
EOF
chmod 755 $base/bin/xskit-vm

cat >$base/bin/modprobe <<EOF
#!$base/busybox sh
# Loads a module by one of its names, after what it needs. The kernel calls this too.
found=1
for name in "\$@"; do
  name=\$($base/busybox echo "\$name" | $base/busybox tr - _)
  while read -r alias modules; do
    [ "\$alias" = "\$name" ] || continue
    found=0
    for module in \$modules; do
      [ -d /sys/module/\$module ] || $base/busybox insmod "$(cat $base/folder)/\$module.ko"
    done
  done <"$(cat $base/folder)/aliases"
done
exit \$found
EOF
chmod 755 $base/bin/modprobe
echo $base/bin/modprobe >/proc/sys/kernel/modprobe
$base/bin/modprobe "$(sed -n 's/.*xskit\.nic=\([^ ]*\).*/\1/p' /proc/cmdline)"

for name in /sys/class/net/*; do ip link set "${name##*/}" up; done

control=$(port control)
exec 4<>"$control"
echo "ready $(uname -r) $(nproc)" >&4
read -r end <&4
while IFS= read -r line <&4 && [ "$line" != "#xskit-end" ]; do echo "$line"; done >$base/command

mkfifo $base/stdout $base/stderr
{ cat <$base/stdout; printf %s "$end"; } >"$(port stdout)" 4>&- &
out=$!
{ cat <$base/stderr; printf %s "$end"; } >"$(port stderr)" 4>&- &
err=$!
echo started >&4
# By this machine's own shell: busybox's would run its applets where the command has the same name (ip).
setsid /bin/sh $base/command </dev/null >$base/stdout 2>$base/stderr 4>&-
status=$?

# What the command has left running may hold its output open: it had its time.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  if ! kill -0 $out 2>/dev/null && ! kill -0 $err 2>/dev/null; then break; fi
  sleep 0.1
done
for pid in /proc/[0-9]*; do
  case "$(readlink "$pid/fd/1") $(readlink "$pid/fd/2")" in
    *"$base/stdout"*|*"$base/stderr"*) [ "${pid#/proc/}" = $$ ] || kill -9 "${pid#/proc/}" 2>/dev/null ;;
  esac
done
wait $out $err
sync
umount $base/out
echo "exit $status" >&4
while :; do sleep 60; done
