local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end

local function sorted(round)
  local words = {}
  for i = 1, 2000 do words[i] = ("word%d"):format((i * 7919 + round) % 1000) end
  table.sort(words, function(a, b) return #a == #b and a < b or #a < #b end)
  return table.concat(words, ",")
end

local stop, round, sum = os.clock() + 4, 0, 0
while os.clock() < stop do
  round = round + 1
  local text = sorted(round)
  for digits in text:gmatch("word(%d+)") do sum = (sum + tonumber(digits)) % 1000003 end
  pcall(function() if round % 3 == 0 then error("unlucky") end end)
  text:gsub("%d", function(d) return d + 1 end)
  sum = sum + fib(18) % 7
end
print(sum)
