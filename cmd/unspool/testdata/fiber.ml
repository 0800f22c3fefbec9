(* Touches new pages for as long as it runs, from OCaml code below some callers. Since OCaml 5 that is on a stack of its
   own, the main fiber's, and CFI leads from it to the one of C. *)

let page = 4096
let pages = 64

let[@inline never] fiber_leaf buffer n = Bytes.unsafe_set buffer (n * page) 'x'

let rec fiber_caller depth buffer n =
  if depth = 0 then fiber_leaf buffer n else fiber_caller (depth - 1) buffer n;
  ignore (Sys.opaque_identity depth)

let () =
  while true do
    let buffer = Bytes.create (pages * page) in
    for n = 0 to pages - 1 do
      fiber_caller 10 buffer n;
      Unix.sleepf 0.001
    done;
    Gc.full_major ()
  done
