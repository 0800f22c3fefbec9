module Words = Map.Make (String)

exception Unlucky of int

let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)

let count round =
  let add words i =
    let word = Printf.sprintf "word%d" ((i * 7919 + round) mod 1000) in
    Words.update word (function None -> Some 1 | Some n -> Some (n + 1)) words
  in
  List.fold_left add Words.empty (List.init 2000 Fun.id)

let sorted words =
  Words.bindings words
  |> List.sort (fun (a, n) (b, m) -> compare (n, String.length a, a) (m, String.length b, b))
  |> List.map fst |> String.concat ","

let () =
  let until = Unix.gettimeofday () +. 4. and sum = ref 0 and round = ref 0 in
  while Unix.gettimeofday () < until do
    incr round;
    (try if !round mod 3 = 0 then raise (Unlucky !round) with Unlucky n -> sum := !sum + n);
    sum := !sum + String.length (sorted (count !round)) + fib 18;
    Buffer.(let b = create 16 in for i = 0 to 9999 do add_char b (Char.chr (i land 127)) done;
            sum := !sum + Hashtbl.hash (contents b))
  done;
  print_int !sum
