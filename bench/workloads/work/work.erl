-module(work).
-export([main/0]).

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

count(Round) ->
    lists:foldl(fun(I, Words) ->
        maps:update_with(integer_to_list((I * 7919 + Round) rem 1000), fun(N) -> N + 1 end, 1, Words)
    end, #{}, lists:seq(1, 2000)).

step(End, Round, Sum) ->
    case erlang:monotonic_time(millisecond) < End of
        false -> Sum;
        true ->
            Words = lists:sort(fun({A, N}, {B, M}) -> {N, A} =< {M, B} end, maps:to_list(count(Round))),
            Text = iolist_to_binary(io_lib:format("~p", [Words])),
            Found = re:run(Text, "\"(\\d+)\"", [global, {capture, all, list}]),
            Unlucky = try error(unlucky) catch error:unlucky -> 1 end,
            step(End, Round + 1, Sum + erlang:phash2({Found, fib(18)}) + Unlucky)
    end.

main() ->
    End = erlang:monotonic_time(millisecond) + 4000,
    Self = self(),
    [spawn_link(fun() -> Self ! step(End, I, 0) end) || I <- [1, 2]],
    [receive N -> io:format("~p~n", [N]) end || _ <- [1, 2]].
