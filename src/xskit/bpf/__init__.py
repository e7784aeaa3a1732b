"""XDP programs without a compiler: an assembler, bpf(2), maps, programs, attaching them, and the ones xskit needs.

```
ProgramSpec  --load-->  Program  --attach-->  BpfLink        pure data -> kernel object -> kernel object on a device
 asm, redirect           program, map          attach         every bpf(2) call goes through `syscall`, every netlink
                                                              message through `netlink`: tests put a fake there
```

Maps, programs and links live as long as somebody holds their file descriptor: closing is all the cleaning there is,
and a process that dies leaves nothing behind.
"""
