words = (0..2000).map { |i| "word#{i * 7919 % 1000}" }

def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)

finish = Time.now + 3
while Time.now < finish
  text = words.sort_by { |w| [w.size, w.reverse] }.join(' ')
  text.scan(/(w[a-z]+)(\d+)/).group_by(&:last).transform_values(&:size)
  text.gsub(/\d+/) { |d| d.to_i.to_s(2) }
  fib(12)
  3**2000 % 1_000_007
end
